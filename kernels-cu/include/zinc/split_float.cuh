// Numbers in two parts, so that the tensor cores multiply them with nearly the accuracy of f32.
#pragma once
#include "zinc/mma.cuh"

namespace zinc {

// A number as the sum of two with the 11 significant bits of tf32 (the second one's last bits are lost when the tensor
// cores read it): products of such numbers without the one of both second parts are within 2^-19 of the f32 product.
// For an infinity or a NaN the second part is a NaN. `rounded`: the first part is rounded and not cut off.
template <bool rounded = false>
struct SplitFloat {
  uint32_t high;
  uint32_t low;

  ZINC_DEVICE explicit SplitFloat(float x)
      : high((__float_as_uint(x) + (rounded ? 0x1000u : 0u)) & 0xffffe000u),
        low(__float_as_uint(x - __uint_as_float(high))) {}
};

// Four numbers of A in two parts. Where the first part is not rounded it is the number that is split, as far as the
// tensor cores see it, which the compiler then moves to its place in the operand for every instruction; rounding takes
// registers.
template <bool rounded = true>
struct SplitOperand {
  uint32_t high[4];
  uint32_t low[4];

  ZINC_DEVICE SplitOperand(float a, float b, float c, float d) {
    const SplitFloat<rounded> x[4] = {SplitFloat<rounded>(a), SplitFloat<rounded>(b), SplitFloat<rounded>(c),
                                      SplitFloat<rounded>(d)};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      high[i] = x[i].high;
      low[i] = x[i].low;
    }
  }
};

}  // namespace zinc
