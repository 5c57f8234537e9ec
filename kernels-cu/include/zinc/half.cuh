// IEEE binary16 as a storage format: exact widening to f32 and round-to-nearest-even narrowing, both with
// subnormals, infinities and NaN; and pairs of them in a word, the first in the lower half.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

// The f32 value of the binary16 with bit pattern `bits`. Exact; every NaN gives some quiet NaN.
ZINC_DEVICE float half_to_float(uint16_t bits) {
#ifdef ZINC_EMULATOR
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return __uint_as_float(sign | __float_as_uint(magnitude));
  }
  if (exponent == 0x1F) {
    return __uint_as_float(sign | 0x7F800000u | (fraction != 0 ? 0x400000u | (fraction << 13) : 0u));
  }
  return __uint_as_float(sign | ((exponent + 112) << 23) | (fraction << 13));
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}

// The bit pattern of the binary16 nearest to `value`, ties to even; beyond 65504 by half a unit or more gives
// infinity, NaN gives 0x7FFF as the hardware does.
ZINC_DEVICE uint16_t float_to_half(float value) {
#ifdef ZINC_EMULATOR
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t infinity = 0x7F800000u;
  constexpr uint32_t overflow = 0x477FF000u;         // 65520: the tie between 65504 and the next step rounds up
  constexpr uint32_t smallest_normal = 0x38800000u;  // 2^-14
  if (magnitude > infinity) {
    return 0x7FFFu;
  }
  if (magnitude >= overflow) {
    return static_cast<uint16_t>(sign | 0x7C00u);
  }
  if (magnitude < smallest_normal) {
    // The spacing of f32 at 0.5 is 2^-24, that of subnormal halves: the addition rounds to it.
    const uint32_t rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f);
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
#else
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}

// The pair of the binary16 numbers nearest to two values.
ZINC_DEVICE uint32_t floats_to_halves(float first, float second) {
#if defined(ZINC_EMULATOR) || ZINC_ARCH < 80
  return float_to_half(first) | uint32_t{float_to_half(second)} << 16;
#else
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

// The 16-bit numbers that the tensor cores multiply: each says what a bit pattern is worth, and rounds two values to
// nearest. bfloat16 is the upper half of f32: less exact than binary16, of f32's range.
struct Binary16 {
  static ZINC_DEVICE float value(uint16_t bits) { return half_to_float(bits); }
  static ZINC_DEVICE uint32_t pair(float first, float second) { return floats_to_halves(first, second); }
};
struct Bfloat16 {
  static ZINC_DEVICE float value(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }
  static ZINC_DEVICE uint32_t pair(float first, float second) {
#if defined(ZINC_EMULATOR) || ZINC_ARCH < 80
    const auto one = [](float value) {
      const uint32_t bits = __float_as_uint(value);
      if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
      return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    };
    return one(first) | one(second) << 16;
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#endif
  }
};

template <class Number>
constexpr bool is_bfloat = false;
template <>
constexpr bool is_bfloat<Bfloat16> = true;

// Two values as sums of two numbers each, first and second. Beyond the range of the first, the second is an infinity of
// the other sign, so that the sum is a NaN.
template <class Number>
struct Split {
  uint32_t first;
  uint32_t second;
  ZINC_DEVICE Split(float x, float y) {
    first = Number::pair(x, y);
    second = Number::pair(x - Number::value(static_cast<uint16_t>(first)),
                          y - Number::value(static_cast<uint16_t>(first >> 16)));
  }
};

// a * b + c of both bfloat16 halves, for results that are exact.
ZINC_DEVICE uint32_t exact_bfloats(uint32_t a, uint32_t b, uint32_t c) {
#if defined(ZINC_EMULATOR) || ZINC_ARCH < 80
  const auto one = [](uint32_t a, uint32_t b, uint32_t c) {
    const auto value = [](uint32_t bits) { return Bfloat16::value(static_cast<uint16_t>(bits)); };
    return fmaf(value(a), value(b), value(c));
  };
  return Bfloat16::pair(one(a, b, c), one(a >> 16, b >> 16, c >> 16));
#else
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
#endif
}

// a * b + c of both halves, for results that are exact in binary16.
ZINC_DEVICE uint32_t exact_halves(uint32_t a, uint32_t b, uint32_t c) {
#ifdef ZINC_EMULATOR
  const auto one = [](uint32_t a, uint32_t b, uint32_t c) {
    const float product = half_to_float(static_cast<uint16_t>(a)) * half_to_float(static_cast<uint16_t>(b));
    return uint32_t{float_to_half(product + half_to_float(static_cast<uint16_t>(c)))};
  };
  return one(a, b, c) | one(a >> 16, b >> 16, c >> 16) << 16;
#else
  uint32_t pair;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
#endif
}

// |a| * b + c of both halves, rounded and cut to 0 .. 1; a NaN gives 0. From compute capability 8.0 on.
ZINC_DEVICE uint32_t saturated_halves(uint32_t a, uint32_t b, uint32_t c) {
#ifdef ZINC_EMULATOR
  const auto one = [](uint32_t a, uint32_t b, uint32_t c) {
    const float product = fabsf(half_to_float(static_cast<uint16_t>(a))) * half_to_float(static_cast<uint16_t>(b));
    return uint32_t{float_to_half(fminf(fmaxf(product + half_to_float(static_cast<uint16_t>(c)), 0.0f), 1.0f))};
  };
  return one(a, b, c) | one(a >> 16, b >> 16, c >> 16) << 16;
#else
  uint32_t pair;
  asm("{\n\t.reg .b32 size;\n\tabs.f16x2 size, %1;\n\tfma.rn.sat.f16x2 %0, size, %2, %3;\n\t}"
      : "=r"(pair)
      : "r"(a), "r"(b), "r"(c));
  return pair;
#endif
}

// The larger of both halves of two pairs that are not negative.
ZINC_DEVICE uint32_t max_halves(uint32_t a, uint32_t b) {
#ifdef ZINC_EMULATOR
  return max(a & 0xFFFFu, b & 0xFFFFu) | max(a >> 16, b >> 16) << 16;
#else
  uint32_t pair;
  asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
#endif
}

}  // namespace zinc
