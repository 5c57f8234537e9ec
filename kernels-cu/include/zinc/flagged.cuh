// Parameter tensors whose element type a flag of the push block gives.
#pragma once
#include "zinc/half.cuh"

namespace zinc {

// Element i of a tensor that holds f16 or f32, as a flag of the push block says.
ZINC_DEVICE float flagged_element(const void* tensor, uint64_t i, uint32_t is_f16) {
  return is_f16 != 0 ? half_to_float(static_cast<const uint16_t*>(tensor)[i]) : static_cast<const float*>(tensor)[i];
}

}  // namespace zinc
