// q6_K as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/half_lane.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// Lanes 0 and 1 of a quad have the first 128 columns of a block, 2 and 3 the others. Set s holds the 32 columns whose
// upper bits are bits 2 s and 2 s + 1 of the high bytes: two sub-blocks, of each of which a lane has eight columns.
// Weight bytes are 4 (q - 32).
struct Q6KTiles {
  using Format = Q6K;
  using Row = int8_t;
  static constexpr unsigned scale_columns = 16;
  static constexpr bool halves = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = false;
  static constexpr unsigned step_bytes = Q6K::block_bytes;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned pitch = 240;
  static constexpr unsigned factor_bytes = 0;
  static constexpr bool has_outer = true;

  static ZINC_DEVICE unsigned position(unsigned column) {
    return column / 32 % 4 * set_columns + column / 128 * 32 + column / 8 % 2 * 16 + column / 16 % 2 * 8 + column % 8;
  }
  static ZINC_DEVICE float set_scale(unsigned) { return 0.25f; }

  using Lane = HalfLane;

  struct Fragment {
    uint32_t low[2][2][2];  // two words of each sub-block
    uint32_t high[2][2];
    uint32_t scales[2];
    float d;

    template <class Row>
    ZINC_DEVICE void load(const Row& row, const Lane& lane) {
      constexpr unsigned high_at = 128;
      constexpr unsigned scales_at = 192;
      constexpr unsigned d_at = 208;
      for_constants<2>([&](auto i) {
        constexpr unsigned at = 16 * decltype(i)::index;
        row.template load<at>(64 * lane.half + 8 * lane.side, low[0][i.index]);
        row.template load<32 + at>(64 * lane.half + 8 * lane.side, low[1][i.index]);
        row.template load<high_at + at>(32 * lane.half + 8 * lane.side, high[i.index]);
      });
      row.template load<scales_at>(8 * lane.half, scales);
      d = row.template load_half<d_at>(0);
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const {
      const uint32_t lows = low[set % 2][i / 2][i % 2];
      const uint32_t nibble = (set < 2 ? lows << 2 : lows >> 2) & 0x3C3C3C3Cu;
      return nibble | (((high[i / 2][i % 2] << (6 - 2 * set)) & 0xC0C0C0C0u) ^ 0x80808080u);
    }
  };

  struct Factors {
    float outer;
    float scale[2 * step_sets];

    ZINC_DEVICE Factors(const Fragment& f, const Lane&) {
      outer = f.d;
#pragma unroll
      for (unsigned i = 0; i < 2 * step_sets; ++i) scale[i] = SignedQuants::to_float(f.scales[i / 4], i % 4);
    }
  };
};

}  // namespace zinc
