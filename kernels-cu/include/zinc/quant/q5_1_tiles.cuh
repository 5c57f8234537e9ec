// q5_1 as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/q5_1.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// A step is eight blocks. Lanes 0 and 1 of a quad have block 2 s in set s, 2 and 3 the next one; of a block's 16 bytes
// of nibbles, each of them has eight.
struct Q5_1Tiles {
  using Format = Q5_1;
  using Row = uint8_t;
  using Lane = HalfLane;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool halves = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = true;
  static constexpr unsigned step_bytes = step_columns / Q5_1::block_columns * Q5_1::block_bytes;
  static constexpr unsigned alignment = 4;
  static constexpr unsigned pitch = 208;
  static constexpr unsigned factor_bytes = 4;
  static constexpr bool has_outer = false;

  // Bytes 0 .. 7 of a lane are those of low nibbles, 8 .. 15 of high ones.
  static ZINC_DEVICE unsigned position(unsigned column) {
    return column / 32 * 32 + column / 8 % 2 * 16 + column / 16 % 2 * 8 + column % 8;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 1.0f; }

  struct Fragment {
    uint32_t head[step_sets][2];  // f16 factor and minimum, fifth bits
    uint32_t nibbles[step_sets][2];
    float minimum[2];

    template <class Row>
    ZINC_DEVICE void load(const Row& row, const Lane& lane) {
      constexpr unsigned minimum_at = 2;
      constexpr unsigned nibbles_at = 8;
      for_constants<step_sets>([&](auto s) {
        constexpr unsigned block = 2 * Q5_1::block_bytes * decltype(s)::index;
        const unsigned half = Q5_1::block_bytes * lane.half;
        row.template load_aligned<block>(half, head[s.index]);
        row.template load_aligned<block + nibbles_at>(half + 8 * lane.side, nibbles[s.index]);
      });
      for_constants<2>([&](auto i) {
        // Formats subtract their minimum; this one adds it.
        minimum[i.index] = -row.template load_half<Q5_1::block_bytes* decltype(i)::index + minimum_at>(
            Q5_1::block_bytes * (4 * lane.half + 2 * lane.side));
      });
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane& lane) const {
      const uint32_t fifths = head[set][1] >> (8 * lane.side) >> (i / 2 * 16);
      const uint32_t spread = i % 2 == 0 ? spread_bits<4>(fifths) : spread_bits<4, 4>(fifths);
      return ((nibbles[set][i % 2] >> (i / 2 * 4)) & 0x0F0F0F0Fu) | (spread & 0x10101010u);
    }
  };

  struct Factors {
    float scale[step_sets];
    float minimum[2];

    ZINC_DEVICE Factors(const Fragment& f, const Lane&) : minimum{f.minimum[0], f.minimum[1]} {
#pragma unroll
      for (unsigned s = 0; s < step_sets; ++s) scale[s] = half_to_float(static_cast<uint16_t>(f.head[s][0]));
    }
  };
};

}  // namespace zinc
