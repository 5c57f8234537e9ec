// q5_0 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/q5_0.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// As q5_1: a set has two neighbouring blocks, the lanes of a half the low and the high nibbles. Weight bytes are 8 (q -
// 16).
struct Q5_0Tiles {
  using Format = Q5_0;
  using Row = int8_t;
  using Lane = HalfLane;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = step_columns / Q5_0::block_columns * Q5_0::block_bytes;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned pitch = 208;
  static constexpr unsigned factor_bytes = 2;
  static constexpr bool has_outer = false;

  static ZINC_DEVICE unsigned position(unsigned column) { return column; }
  static ZINC_DEVICE float set_scale(unsigned) { return 0.125f; }

  struct Fragment {
    uint32_t payload[step_sets][5];  // fifth bits, nibbles
    float scale[step_sets];

    ZINC_DEVICE Fragment(const StagedRow& row, const Lane& lane) {
      constexpr unsigned payload_at = 2;
#pragma unroll
      for (unsigned s = 0; s < step_sets; ++s) {
        row.from(Q5_0::block_bytes * lane.half + payload_at).load(2 * Q5_0::block_bytes * s, payload[s]);
        scale[s] = row.load_half(Q5_0::block_bytes * (2 * s + lane.half));
      }
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane& lane) const {
      const uint32_t fifths = payload[set][0] >> (16 * lane.side + 4 * i);
      const uint32_t nibbles = ((payload[set][1 + i] >> (4 * lane.side)) << 3) & 0x78787878u;
      return nibbles | ((spread_fifth_bits(fifths) << 3) ^ 0x80808080u);
    }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
