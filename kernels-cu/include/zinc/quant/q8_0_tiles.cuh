// q8_0 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/q8_0.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// A step is eight blocks. Lanes 0 and 1 of a quad have block 4 (s / 2) + s % 2 in set s, 2 and 3 the block two further
// on, which has the same alignment.
struct Q8_0Tiles {
  using Format = Q8_0;
  using Row = int8_t;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool pairs = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = step_columns / Q8_0::block_columns * Q8_0::block_bytes;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned pitch = 288;
  static constexpr unsigned factor_bytes = 2;
  static constexpr bool has_outer = false;

  static ZINC_DEVICE unsigned position(unsigned column) {
    const unsigned block = column / 32;
    return (block / 4 * 2 + block % 2) * set_columns + block / 2 % 2 * 32 + column % 32;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 1.0f; }

  using Lane = HalfLane;

  struct Fragment {
    uint32_t bytes[step_sets][4];
    float scale[step_sets];

    ZINC_DEVICE Fragment(const StagedRow& row, const Lane& lane) {
      constexpr unsigned quants_at = 2;
      const unsigned blocks_at = 2 * Q8_0::block_bytes * lane.half;
#pragma unroll
      for (unsigned odd = 0; odd < 2; ++odd) {
        const StagedRow quants = row.from(blocks_at + Q8_0::block_bytes * odd + quants_at + 16 * lane.side);
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          quants.load(4 * Q8_0::block_bytes * i, bytes[2 * i + odd]);
          scale[2 * i + odd] = row.load_half(blocks_at + Q8_0::block_bytes * (4 * i + odd));
        }
      }
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const { return bytes[set][i]; }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
