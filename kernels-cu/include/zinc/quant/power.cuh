// Powers of two.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

// 2^exponent, a normal number.
template <int exponent>
ZINC_DEVICE float power_float() {
  static_assert(exponent > -127 && exponent < 128);
  return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
}

}  // namespace zinc
