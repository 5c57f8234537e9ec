// q4_K as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/quant/k_tiles.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

// High nibbles stay where they are, as bytes of 16 q.
struct Q4KTiles {
  using Format = Q4K;
  using Row = uint8_t;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool pairs = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = true;
  static constexpr unsigned step_bytes = Q4K::block_bytes;
  static constexpr unsigned alignment = 16;
  static constexpr unsigned pitch = 0;
  static constexpr bool has_outer = true;

  static ZINC_DEVICE unsigned position(unsigned column) { return k_tile_position(column); }
  static ZINC_DEVICE float set_scale(unsigned set) { return set % 2 == 0 ? 1.0f : 0.0625f; }

  using Lane = KTileLane;

  // What a lane holds of a row.
  struct Fragment {
    uint4 head;
    uint4 quants[2];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned quants_at = 16;
      head = load_passing(reinterpret_cast<const uint4*>(block));
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        quants[i] = load_passing(reinterpret_cast<const uint4*>(block + quants_at + 64 * i + 16 * lane));
      }
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const {
      const uint4& q = quants[set / 2];
      const uint32_t both = i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
      return both & (set % 2 == 0 ? 0x0F0F0F0Fu : 0xF0F0F0F0u);
    }
  };

  struct Factors : KTileFactors {
    ZINC_DEVICE Factors(const Fragment& f, const Lane& lane) : KTileFactors(f.head, lane) {}
  };
};

// The same for pairs of vectors: a lane has eight columns of each sub-block.
struct Q4KPairs {
  using Format = Q4K;
  using Row = uint8_t;
  static constexpr bool has_minimum = true;
  static constexpr bool pairs = true;
  static constexpr unsigned step_bytes = Q4K::block_bytes;
  static constexpr unsigned alignment = 16;
  static constexpr unsigned pitch = 0;

  using Lane = KPairLane;

  struct Fragment {
    uint4 head;
    uint2 quants[4];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned quants_at = 16;
      head = load_passing(reinterpret_cast<const uint4*>(block));
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        quants[i] = load_passing(reinterpret_cast<const uint2*>(block + quants_at + 32 * i + 8 * lane));
      }
    }

    ZINC_DEVICE uint32_t word(unsigned group, unsigned i) const {
      const uint32_t both = i == 0 ? quants[group / 2].x : quants[group / 2].y;
      return both & (group % 2 == 0 ? 0x0F0F0F0Fu : 0xF0F0F0F0u);
    }
  };

  struct Factors : KPairFactors<4> {
    ZINC_DEVICE Factors(const Fragment& f, const Lane& lane) : KPairFactors(f.head, lane) {}
  };
};

}  // namespace zinc
