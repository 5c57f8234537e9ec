// q5_0 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/q5_0.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// A set has blocks s and s + 4, whose alignment is the same, one for each half of a quad. Of a block's 16 bytes of
// nibbles, a lane has eight. Weight bytes are 8 (q - 16).
struct Q5_0Tiles {
  using Format = Q5_0;
  using Row = int8_t;
  using Lane = HalfLane;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool halves = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = step_columns / Q5_0::block_columns * Q5_0::block_bytes;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned pitch = 208;
  static constexpr unsigned factor_bytes = 2;
  static constexpr bool has_outer = false;

  // Bytes 0 .. 7 of a lane are those of low nibbles, 8 .. 15 of high ones.
  static ZINC_DEVICE unsigned position(unsigned column) {
    return column / 32 % 4 * set_columns + column / 128 * 32 + column / 8 % 2 * 16 + column / 16 % 2 * 8 + column % 8;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 0.125f; }

  struct Fragment {
    uint32_t fifths[step_sets][1];
    uint32_t nibbles[step_sets][2];
    float scale[step_sets];

    template <class Row>
    ZINC_DEVICE void load(const Row& row, const Lane& lane) {
      constexpr unsigned fifths_at = 2;
      constexpr unsigned nibbles_at = 6;
      for_constants<step_sets>([&](auto s) {
        constexpr unsigned block = Q5_0::block_bytes * decltype(s)::index;
        const unsigned half = 4 * Q5_0::block_bytes * lane.half;
        row.template load<block + fifths_at>(half, fifths[s.index]);
        row.template load<block + nibbles_at>(half + 8 * lane.side, nibbles[s.index]);
        scale[s.index] = row.template load_half<block>(half);
      });
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane& lane) const {
      const uint32_t eight_fifths = fifths[set][0] >> (8 * lane.side) >> (i / 2 * 16);
      const uint32_t spread = i % 2 == 0 ? spread_bits<7>(eight_fifths) : spread_bits<7, 4>(eight_fifths);
      const uint32_t four_nibbles = i < 2 ? nibbles[set][i % 2] << 3 : nibbles[set][i % 2] >> 1;
      return (four_nibbles & 0x78787878u) | (~spread & 0x80808080u);
    }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
