// q4_K as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/quant/k_tiles.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

// High nibbles stay where they are, as bytes of 16 q.
struct Q4KTiles : KTiles<Q4K> {
  static ZINC_DEVICE float set_scale(unsigned set) { return set % 2 == 0 ? 1.0f : 0.0625f; }

  // What a lane holds of a row.
  struct Fragment {
    uint4 head;
    uint4 quants[2];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned quants_at = 16;
      head = load_passing(reinterpret_cast<const uint4*>(block));
      load_k_quants(quants, block + quants_at, lane);
    }

    ZINC_DEVICE uint32_t both(unsigned set, unsigned i) const {
      const uint4& q = quants[set / 2];
      return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
    }
    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane&) const {
      return both(set, i) & (set % 2 == 0 ? 0x0F0F0F0Fu : 0xF0F0F0F0u);
    }
  };
};

struct Q4KHalves : KHalves<Q4K, 4> {
  struct Fragment : Q4KTiles::Fragment {
    ZINC_DEVICE uint32_t pair(unsigned set, unsigned i, unsigned odd, const Lane&) const {
      return (both(set, i) >> (odd * 8)) & (set % 2 == 0 ? 0x000F000Fu : 0x00F000F0u);
    }
  };
};

}  // namespace zinc
