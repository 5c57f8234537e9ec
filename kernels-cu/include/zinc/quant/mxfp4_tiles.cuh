// MXFP4 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/mxfp4.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// A set has blocks s and s + 4, whose alignment is the same, one for each half of a quad. Of a block's 16 bytes of
// codes, a lane has eight.
struct Mxfp4Tiles {
  using Format = Mxfp4;
  using Row = int8_t;
  using Lane = HalfLane;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool halves = false;
  static constexpr bool interleaved = true;
  static constexpr unsigned parts = 2;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = step_columns / Mxfp4::block_columns * Mxfp4::block_bytes;
  static constexpr unsigned alignment = 1;
  static constexpr unsigned pitch = 176;
  static constexpr unsigned ring_steps = 4;
  static constexpr unsigned ring_pitch = ring_steps * 136 + 16;  // eight rows in different banks
  static constexpr unsigned factor_bytes = 1;
  static constexpr bool has_outer = false;

  // Weights are in the order of codes in memory, low and high nibbles by turns.
  static ZINC_DEVICE unsigned position(unsigned column) {
    return column / 32 % 4 * set_columns + column / 128 * 32 + column / 8 % 2 * 16 + column / 16 % 2 * 8 + column % 8;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 0.5f; }

  struct Fragment {
    uint32_t codes[step_sets][2];
    float scale[step_sets];

    template <class Row>
    ZINC_DEVICE void load(const Row& row, const Lane& lane) {
      constexpr unsigned codes_at = 1;
      for_constants<step_sets>([&](auto s) {
        constexpr unsigned block = Mxfp4::block_bytes * decltype(s)::index;
        const unsigned half = 4 * Mxfp4::block_bytes * lane.half;
        row.template load<block + codes_at>(half + 8 * lane.side, codes[s.index]);
        scale[s.index] = Mxfp4::power(row.template load_byte<block>(half));
      });
    }

    // Twice the positive weights, or twice the negative ones without their sign, and zeros. The nibbles are the
    // selectors of a table look-up of which a fourth bit gives the sign of the entry instead, which is 0.
    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&, unsigned part) const {
      const uint32_t selectors = codes[set][i / 2] >> (16 * (i % 2));
      return permute_bytes(0x03020100u, 0x0C080604u, part == 0 ? selectors : selectors ^ 0x8888u);
    }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
