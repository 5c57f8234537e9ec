// Loads of weight bytes: streaming wide loads where blocks are aligned, and words assembled from what the alignment of
// a block allows. No load touches a byte outside the block that it is for, up to the spare bytes that it names.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

ZINC_DEVICE bool is_aligned(const void* p, unsigned alignment) {
  return (reinterpret_cast<uint64_t>(p) & (alignment - 1)) == 0;
}

ZINC_DEVICE uint16_t load_u16(const uint8_t* p) { return __ldg(reinterpret_cast<const uint16_t*>(p)); }

ZINC_DEVICE uint32_t load_u32(const uint8_t* p) { return __ldg(reinterpret_cast<const uint32_t*>(p)); }

// 16 or 8 bytes of weights, which are read once: they leave the first cache soon, and bring the 128 bytes around, which
// are read soon, to the second one.
ZINC_DEVICE uint4 load_passing(const uint4* p) {
#if defined(ZINC_EMULATOR) || ZINC_ARCH < 80
  return __ldcs(p);
#else
  uint4 v;
  asm("ld.global.nc.L1::evict_first.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
#endif
}
ZINC_DEVICE uint2 load_passing(const uint2* p) {
#if defined(ZINC_EMULATOR) || ZINC_ARCH < 80
  return __ldcs(p);
#else
  uint2 v;
  asm("ld.global.nc.L1::evict_first.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
#endif
}

// Four words at `p`: one load where `wide` says that p is 16-byte aligned, else four from 4-byte aligned addresses.
template <bool wide>
ZINC_DEVICE void load_four_words(const uint8_t* p, uint32_t (&words)[4]) {
  if constexpr (wide) {
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
  } else {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) words[i] = load_u32(p + 4 * i);
  }
}

// Where a block has two bytes to spare beside a field, so that aligned words around the field stay inside the block.
enum class Spare { before, after };

// `count` words at the even address `p`, by aligned 4-byte loads and one 2-byte load.
template <Spare side, unsigned count>
ZINC_DEVICE void load_even_words(const uint8_t* p, uint32_t (&words)[count]) {
  const bool split = !is_aligned(p, 4);
  // Result byte i of a split word comes from byte i + 2 of the pair (lower, upper).
  if constexpr (side == Spare::before) {
    const uint8_t* const first = split ? p - 2 : p;
    const unsigned selector = split ? 0x5432u : 0x3210u;
    uint32_t lower = load_u32(first);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t upper = i + 1 < count ? load_u32(first + 4 * (i + 1)) : load_u16(p + 4 * count - 2);
      words[i] = __byte_perm(lower, upper, selector);
      lower = upper;
    }
  } else {
    const uint8_t* const first = split ? p + 2 : p;
    const unsigned selector = split ? 0x5432u : 0x7654u;
    uint32_t lower = uint32_t{load_u16(p)} << 16;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t upper = load_u32(first + 4 * i);
      words[i] = __byte_perm(lower, upper, selector);
      lower = upper;
    }
  }
}

// The four bytes of (b, a) that the lowest four nibbles of `selectors` name by their lower three bits; where a nibble's
// top bit is set, eight copies of that byte's top bit instead. PTX ISA, "prmt".
ZINC_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selectors) {
#ifdef ZINC_EMULATOR
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i);
    const uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7u))) & 0xFFu;
    result |= ((selector & 8u) == 0 ? byte : (byte & 0x80u) != 0 ? 0xFFu : 0u) << (8 * i);
  }
  return result;
#else
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selectors));
  return result;
#endif
}

// Bits from .. from + 3 of `bits` as bit `to` of bytes 0..3, among bits that do not matter.
template <unsigned to, unsigned from = 0>
ZINC_DEVICE uint32_t spread_bits(uint32_t bits) {
  static_assert(from <= to && to < 8);
  return (bits & (0xFu << from)) * (0x00204081u << (to - from));
}

// The same as the fifth bit of four quants.
ZINC_DEVICE uint32_t spread_fifth_bits(uint32_t bits) { return spread_bits<4>(bits) & 0x10101010u; }

}  // namespace zinc
