// MXFP4 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/mxfp4.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// A set has two neighbouring blocks, one for each half of a quad. Of a block's 16 bytes of codes, a lane has eight:
// four words of its columns, low nibbles and high nibbles of each four bytes.
struct Mxfp4Tiles {
  using Format = Mxfp4;
  using Row = int8_t;
  using Lane = HalfLane;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = step_columns / Mxfp4::block_columns * Mxfp4::block_bytes;
  static constexpr unsigned alignment = 1;
  static constexpr unsigned pitch = 176;
  static constexpr unsigned factor_bytes = 1;
  static constexpr bool has_outer = false;

  // Bytes 0 .. 7 of a lane are those of low nibbles, 8 .. 15 of high ones.
  static ZINC_DEVICE unsigned position(unsigned column) {
    return column / 32 * 32 + column / 8 % 2 * 16 + column / 16 % 2 * 8 + column % 8;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 1.0f; }

  struct Fragment {
    uint32_t codes[step_sets][2];
    float scale[step_sets];

    ZINC_DEVICE Fragment(const StagedRow& row, const Lane& lane) {
      constexpr unsigned codes_at = 1;
#pragma unroll
      for (unsigned s = 0; s < step_sets; ++s) {
        const unsigned block = Mxfp4::block_bytes * (2 * s + lane.half);
        row.from(block + codes_at + 8 * lane.side).load(0, codes[s]);
        scale[s] = Mxfp4::half_power(row.load_byte(block));
      }
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const {
      return Mxfp4::doubled(codes[set][i % 2] >> (i < 2 ? 0 : 4));
    }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
