// What both forms of int8 matrix-matrix products share, so that they give the same bits.
#pragma once

#include "zinc/mul_mm_rows.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/quants.cuh"

namespace zinc {

// The scale buffers that accompany packed int8 quants, one entry per token and block of 32: (scale, scale * sum of the
// quants) pairs as quantize_act_q8_1 writes them, or single scales as quantize_act_q8 does.
struct ScaleSumPairs {
  static constexpr unsigned floats = 2;
};
struct SingleScales {
  static constexpr unsigned floats = 1;
};

// Packed quants and scales of `count` tokens; pitches in words and in scale entries.
struct Int8Tokens {
  const uint32_t* packed;
  const float* scales;
  uint64_t packed_pitch;
  uint64_t scale_pitch;
  uint32_t count;
};

ZINC_DEVICE void read_four(const uint32_t* p, uint32_t (&values)[4]) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  values[0] = v.x;
  values[1] = v.y;
  values[2] = v.z;
  values[3] = v.w;
}

ZINC_DEVICE void read_four(const float* p, float (&values)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  values[0] = v.x;
  values[1] = v.y;
  values[2] = v.z;
  values[3] = v.w;
}

// Integer sums are counted from the number whose bits are those of 1.5 * 2^23: the sum's bits are then those of
// 1.5 * 2^23 plus the sum, and a subtraction turns it into f32, exactly and at four times the rate of a conversion.
constexpr uint32_t sum_origin = 0x4B400000u;
constexpr uint32_t largest_sum = 1u << 22;
static_assert(32 * 128 * 128 < largest_sum, "a block's sum keeps the exponent");

ZINC_DEVICE float exact_float(int32_t counted) {
  return __uint_as_float(static_cast<uint32_t>(counted)) - __uint_as_float(sum_origin);
}

// Sums over blocks of 256 columns are counted in a unit of the block, which makes its scales whole numbers: its d
// divided by what one of them counts or, where d is zero and the scales are taken for zero, one. At the next block they
// are multiplied by the ratio of the units.
struct BlockUnit {
  float unit;
  float inverse;
  bool is_zero;

  ZINC_DEVICE BlockUnit(uint16_t d, float one) {
    const float number = half_to_float(d);
    is_zero = number == 0.0f;
    unit = is_zero ? 1.0f : number / one;
    inverse = 1.0f / unit;
  }
  ZINC_DEVICE float ratio(float unit_before) const { return unit_before * inverse; }
};

// The head of a block of q4_K or q5_K.
struct KUnit : BlockUnit {
  KNumbers numbers;
  float dmin;

  explicit ZINC_DEVICE KUnit(const uint32_t (&head)[4])
      : BlockUnit(static_cast<uint16_t>(head[0]), k_factor_unit),
        numbers(head),
        dmin(half_to_float(static_cast<uint16_t>(head[0] >> 16))) {}
  // In units: what the integer sum of a block is multiplied by, and what is added for its minimum.
  ZINC_DEVICE float scale(unsigned block) const {
    return is_zero ? 0.0f : number(numbers.scales, block) * k_factor_unit;
  }
  ZINC_DEVICE float minimum(unsigned block) const { return -dmin * number(numbers.minimums, block) * inverse; }
  // The same of block i of the four whose minimums are in a word.
  ZINC_DEVICE float minimum_of(uint32_t minimums, unsigned i) const {
    return -dmin * BiasedQuants<0>::to_float(minimums, i) * inverse;
  }

 private:
  static ZINC_DEVICE float number(const uint32_t (&of)[2], unsigned block) {
    return BiasedQuants<0>::to_float(block < 4 ? of[0] : of[1], block % 4);
  }
};

// The end of a block of q6_K. A sum over 32 columns of quants less 32, times scales, times tokens is a whole number,
// exact in f32 in any order.
struct Q6Unit : BlockUnit {
  static constexpr unsigned scales_at = 192;
  static constexpr unsigned factor_at = 208;
  static_assert(32 * 32 * 128 * 127 < 1 << 24);

  // The unit counts eighths of scales, so that those of the upper five bits are below 2^5.
  static constexpr float scale_unit = 0.125f;

  explicit ZINC_DEVICE Q6Unit(uint16_t d) : BlockUnit(d, scale_unit) {}
  // Of a block in shared memory.
  explicit ZINC_DEVICE Q6Unit(const uint8_t* block) : Q6Unit(*reinterpret_cast<const uint16_t*>(block + factor_at)) {}
  ZINC_DEVICE float scale(int32_t of) const { return is_zero ? 0.0f : static_cast<float>(of) * scale_unit; }
};

}  // namespace zinc
