// Integer intrinsics: counting, permuting and shifting bits, wide products, packed bytes, minimum and maximum.
#pragma once

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value)); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }

inline unsigned __brev(unsigned value) {
  value = (value & 0x55555555u) << 1 | (value >> 1 & 0x55555555u);
  value = (value & 0x33333333u) << 2 | (value >> 2 & 0x33333333u);
  value = (value & 0x0f0f0f0fu) << 4 | (value >> 4 & 0x0f0f0f0fu);
  return __builtin_bswap32(value);
}
inline unsigned long long __brevll(unsigned long long value) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(value))) << 32 |
         __brev(static_cast<unsigned>(value >> 32));
}

// Each selector nibble takes one byte of the eight of y:x; its top bit replicates the byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7))) & 0xffu;
    if ((nibble & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}

inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32 ? lo : __funnelshift_l(lo, hi, shift);
}
inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
  return shift >= 32 ? hi : __funnelshift_r(lo, hi, shift);
}

inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
// The low 32 bits of the product of the low 24 bits, sign-extended in __mul24.
inline int __mul24(int a, int b) {
  const int64_t product =
      static_cast<int64_t>(static_cast<int>(static_cast<unsigned>(a) << 8) >> 8) *
      (static_cast<int>(static_cast<unsigned>(b) << 8) >> 8);
  return static_cast<int>(static_cast<uint32_t>(product));
}
inline unsigned __umul24(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a & 0xffffffu) * (b & 0xffffffu));
}
inline unsigned __sad(int a, int b, unsigned c) {
  const int64_t difference = static_cast<int64_t>(a) - b;
  return static_cast<unsigned>(difference < 0 ? -difference : difference) + c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) + b) >> 1); }

namespace zinc_emulator {

// Sums modulo 2^32, as the hardware's accumulator does.
template <class Byte>
inline uint32_t dot_bytes(uint32_t a, uint32_t b, uint32_t sum) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    sum += static_cast<uint32_t>(static_cast<Byte>(a >> shift) * static_cast<Byte>(b >> shift));
  }
  return sum;
}

// Two halves of `a` times two bytes of `b`, which start at bit `first`.
template <class Half, class Byte>
inline uint32_t dot_halves(uint32_t a, uint32_t b, uint32_t sum, unsigned first) {
  for (unsigned i = 0; i < 2; ++i) {
    sum += static_cast<uint32_t>(static_cast<Half>(a >> (16 * i)) * static_cast<Byte>(b >> (first + 8 * i)));
  }
  return sum;
}

template <class F>
inline unsigned each_byte(unsigned a, unsigned b, F f) {
  unsigned result = 0;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    result |= (static_cast<unsigned>(f(a >> shift & 0xffu, b >> shift & 0xffu)) & 0xffu) << shift;
  }
  return result;
}

inline int signed_byte(unsigned value) { return static_cast<signed char>(value); }
inline int clamp_byte(int value) { return value < -128 ? -128 : value > 127 ? 127 : value; }

}  // namespace zinc_emulator

inline int __dp4a(int a, int b, int c) {
  return static_cast<int>(zinc_emulator::dot_bytes<int8_t>(
      static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c)));
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return zinc_emulator::dot_bytes<uint8_t>(a, b, c); }
inline int __dp4a(char4 a, char4 b, int c) {
  return static_cast<int>(static_cast<uint32_t>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w) +
                          static_cast<uint32_t>(c));
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return static_cast<unsigned>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w) + c;
}
inline int __dp2a_lo(int a, int b, int c) {
  return static_cast<int>(zinc_emulator::dot_halves<int16_t, int8_t>(
      static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c), 0));
}
inline int __dp2a_hi(int a, int b, int c) {
  return static_cast<int>(zinc_emulator::dot_halves<int16_t, int8_t>(
      static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c), 16));
}
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return zinc_emulator::dot_halves<uint16_t, uint8_t>(a, b, c, 0);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return zinc_emulator::dot_halves<uint16_t, uint8_t>(a, b, c, 16);
}

inline unsigned __vadd4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return x - y; });
}
inline unsigned __vaddss4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) {
    return zinc_emulator::clamp_byte(zinc_emulator::signed_byte(x) + zinc_emulator::signed_byte(y));
  });
}
inline unsigned __vsubss4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) {
    return zinc_emulator::clamp_byte(zinc_emulator::signed_byte(x) - zinc_emulator::signed_byte(y));
  });
}
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return x == y ? 0xffu : 0u; });
}
inline unsigned __vcmpne4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return x != y ? 0xffu : 0u; });
}
inline unsigned __vabs4(unsigned a) {
  return zinc_emulator::each_byte(a, 0, [](unsigned x, unsigned) {
    return static_cast<unsigned>(zinc_emulator::signed_byte(x) < 0 ? 0u - x : x);
  });
}
inline unsigned __vminu4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return y < x ? y : x; });
}
inline unsigned __vmaxu4(unsigned a, unsigned b) {
  return zinc_emulator::each_byte(a, b, [](unsigned x, unsigned y) { return x < y ? y : x; });
}

// CUDA's min and max: an unsigned operand makes the comparison unsigned.
#define ZINC_EMULATOR_MIN_MAX(R, A, B)                                                                        \
  constexpr R min(A a, B b) { return static_cast<R>(b) < static_cast<R>(a) ? static_cast<R>(b) : static_cast<R>(a); } \
  constexpr R max(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(b) : static_cast<R>(a); }

ZINC_EMULATOR_MIN_MAX(int, int, int)
ZINC_EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
ZINC_EMULATOR_MIN_MAX(unsigned, int, unsigned)
ZINC_EMULATOR_MIN_MAX(unsigned, unsigned, int)
ZINC_EMULATOR_MIN_MAX(long, long, long)
ZINC_EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
ZINC_EMULATOR_MIN_MAX(unsigned long, long, unsigned long)
ZINC_EMULATOR_MIN_MAX(unsigned long, unsigned long, long)
ZINC_EMULATOR_MIN_MAX(long long, long long, long long)
ZINC_EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
ZINC_EMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
ZINC_EMULATOR_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef ZINC_EMULATOR_MIN_MAX

inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
