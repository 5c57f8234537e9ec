// The 16-byte head that q4_K and q5_K share: f16 d, f16 dmin, then eight 6-bit scales and eight 6-bit minimums in 12
// bytes.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/quants.cuh"

namespace zinc {

// Scale and minimum of the neighbouring sub-blocks 2 * pair and 2 * pair + 1.
struct KScales {
  float scale[2];
  float minimum[2];

  KScales() = default;

  ZINC_DEVICE KScales(const uint32_t (&head)[4], unsigned pair) {
    const float d = half_to_float(static_cast<uint16_t>(head[0]));
    const float dmin = half_to_float(static_cast<uint16_t>(head[0] >> 16));
    // Sub-blocks 0..3 have whole bytes; 4..7 keep their low four bits in the last word and borrow the top two bits of
    // the bytes of sub-blocks 0..3.
    const bool upper = pair >= 2;
    const uint32_t scales = upper ? (head[3] & 0x0F0F0F0Fu) | ((head[1] >> 2) & 0x30303030u) : head[1] & 0x3F3F3F3Fu;
    const uint32_t minimums =
        upper ? ((head[3] >> 4) & 0x0F0F0F0Fu) | ((head[2] >> 2) & 0x30303030u) : head[2] & 0x3F3F3F3Fu;
    const unsigned first = 2 * (pair & 1);
#pragma unroll
    for (unsigned run = 0; run < 2; ++run) {
      scale[run] = d * BiasedQuants<0>::to_float(scales, first + run);
      minimum[run] = dmin * BiasedQuants<0>::to_float(minimums, first + run);
    }
  }
};

}  // namespace zinc
