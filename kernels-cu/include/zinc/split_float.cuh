// Numbers in two parts, so that the tensor cores multiply them with nearly the accuracy of f32.
#pragma once
#include "zinc/mma.cuh"

namespace zinc {

// A number as the sum of two with the 11 significant bits of tf32 (the second one's last bits are lost when the tensor
// cores read it): products of such numbers without the one of both second parts are within 2^-19 of the f32 product.
// For an infinity or a NaN the second part is a NaN. Where the first part has not its `own` register it is the number
// that is split, as far as the tensor cores see it. Its own is made by a conversion from compute capability 9.0 on, and
// before by rounding: that the compiler cannot see through.
template <bool own = false>
struct SplitFloat {
  uint32_t high;
  uint32_t low;

  ZINC_DEVICE explicit SplitFloat(float x) : high(first(x)), low(__float_as_uint(x - __uint_as_float(high))) {}

 private:
  ZINC_DEVICE static uint32_t first(float x) {
    constexpr uint32_t kept = 0xffffe000u;
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
    if constexpr (own) {
      uint32_t bits;
      asm("cvt.rz.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
      return bits;
    }
#elif !defined(ZINC_EMULATOR)
    if constexpr (own) return (__float_as_uint(x) + 0x1000u) & kept;
#endif
    return __float_as_uint(x) & kept;
  }
};

// Four numbers of A in two parts. A first part without its own register the compiler moves to its place in the operand
// for every instruction; its own takes registers.
template <bool own = true>
struct SplitOperand {
  uint32_t high[4];
  uint32_t low[4];

  ZINC_DEVICE SplitOperand(float a, float b, float c, float d) {
    const SplitFloat<own> x[4] = {SplitFloat<own>(a), SplitFloat<own>(b), SplitFloat<own>(c), SplitFloat<own>(d)};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      high[i] = x[i].high;
      low[i] = x[i].low;
    }
  }
};

}  // namespace zinc
