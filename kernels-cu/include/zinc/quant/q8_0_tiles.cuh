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
  static constexpr bool halves = false;
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

    template <class Row>
    ZINC_DEVICE void load(const Row& row, const Lane& lane) {
      constexpr unsigned quants_at = 2;
      for_constants<step_sets>([&](auto s) {
        constexpr unsigned block = Q8_0::block_bytes * (decltype(s)::index / 2 * 4 + decltype(s)::index % 2);
        const unsigned half = 2 * Q8_0::block_bytes * lane.half;
        row.template load<block + quants_at>(half + 16 * lane.side, bytes[s.index]);
        scale[s.index] = row.template load_half<block>(half);
      });
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const { return bytes[set][i]; }
  };

  using Factors = SetScales<Fragment>;
};

}  // namespace zinc
