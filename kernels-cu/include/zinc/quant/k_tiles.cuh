// The 16-byte head that q4_K and q5_K share, as dmmv_tiles.cuh uses it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/half.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// Lanes 0 and 1 of a quad hold an even 32-byte chunk of quants, 2 and 3 the next; a chunk's low nibbles are one
// sub-block, its high nibbles the next one. These are the sets 2 i (low) and 2 i + 1 of the chunks 2 i and 2 i + 1.
ZINC_DEVICE unsigned k_tile_position(unsigned column) {
  const unsigned chunk = column / 64;
  const unsigned high = column / 32 % 2;
  return (chunk / 2 * 2 + high) * set_columns + chunk % 2 * 32 + column % 32;
}

// What differs between the lanes of a quad: how they decode the head. Held, since every step needs it.
struct KTileLane {
  uint32_t low_bytes;
  uint32_t top_bytes;
  uint32_t half_shift;
  uint32_t whole_mask;
  uint32_t low_mask;
  uint32_t minimum_bytes;

  explicit ZINC_DEVICE KTileLane(unsigned lane) {
    const bool second = lane >= 2;
    low_bytes = held(second ? 0x7632u : 0x5410u);
    top_bytes = held(second ? 0x3232u : 0x1010u);
    half_shift = held(second ? 2 : 0);
    whole_mask = held(second ? 0x30303030u : 0x3F3F3F3Fu);
    low_mask = held(second ? 0x0F0F0F0Fu : 0u);
    minimum_bytes = held(0x7440u + lane % 2 * 2);
  }
};

// The factors of a row: weight = outer * scale[set] * q - outer_minimum * minimum, the minimums being those of the
// groups 2 * lane and 2 * lane + 1.
struct KTileFactors {
  float outer;
  float outer_minimum;
  float scale[step_sets];
  float minimum[2];

  ZINC_DEVICE KTileFactors(const uint4& head, const KTileLane& lane) {
    outer = half_to_float(static_cast<uint16_t>(head.x));
    outer_minimum = half_to_float(static_cast<uint16_t>(head.x >> 16));
    // head.y: scales 0..3, head.z: minimums 0..3, both with two bits of 4..7 on top; head.w: four bits each of
    // scales and minimums 4..7. A lane's scales are 2 h, 2 h + 1, 4 + 2 h, 5 + 2 h of its half h, its minimums come
    // from the first four or the last four.
    const uint32_t low = __byte_perm(head.y, head.w, lane.low_bytes);
    const uint32_t top = __byte_perm(head.y, head.y, lane.top_bytes) >> 2;
    const uint32_t scales = (low & 0x0F0F3F3Fu) | (top & 0x30300000u);
#pragma unroll
    for (unsigned s = 0; s < step_sets; ++s) scale[s] = BiasedQuants<0>::to_float(scales, s);
    const uint32_t minimums = ((head.z >> lane.half_shift) & lane.whole_mask) | ((head.w >> 4) & lane.low_mask);
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      minimum[i] = __uint_as_float(__byte_perm(minimums, 0x4B000000u, lane.minimum_bytes + i)) - 8388608.0f;
    }
  }
};

}  // namespace zinc
