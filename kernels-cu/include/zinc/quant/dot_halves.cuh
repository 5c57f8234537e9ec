// Products of pairs of halves with a vector in f32.
#pragma once

#include "zinc/half.cuh"

namespace zinc {

// dot plus the two halves of the pair times x[0] and x[2]. Quants in the last bits of halves are 2^-24 of them,
// exactly, and become floats without an offset: one mask for two quants, one conversion and one multiply-add for each.
ZINC_DEVICE float dot_halves(uint32_t pair, const float* x, float dot) {
  dot = fmaf(half_to_float(static_cast<uint16_t>(pair)), x[0], dot);
  return fmaf(half_to_float(static_cast<uint16_t>(pair >> 16)), x[2], dot);
}

// The numbers of some fours, in order.
template <unsigned count>
ZINC_DEVICE void unpack(float (&x)[4 * count], const float4 (&fours)[count]) {
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    x[4 * i] = fours[i].x;
    x[4 * i + 1] = fours[i].y;
    x[4 * i + 2] = fours[i].z;
    x[4 * i + 3] = fours[i].w;
  }
}

}  // namespace zinc
