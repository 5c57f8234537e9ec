// q5_K as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/quant/k_tiles.cuh"
#include "zinc/quant/q5_k.cuh"

namespace zinc {

struct Q5KTiles : KTiles<Q5K> {
  static ZINC_DEVICE float set_scale(unsigned) { return 1.0f; }

  struct Fragment {
    uint4 head;
    uint4 fifths;  // bit s of a byte belongs to sub-block s
    uint4 quants[2];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned fifths_at = 16;
      constexpr unsigned quants_at = 48;
      head = load_passing(reinterpret_cast<const uint4*>(block));
      fifths = load_passing(reinterpret_cast<const uint4*>(block + fifths_at + 16 * (lane % 2)));
      load_k_quants(quants, block + quants_at, lane);
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane& lane) const {
      const uint4& q = quants[set / 2];
      const uint32_t both = i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
      // After the shift, bits 0, 1, 4, 5 are those of the sets.
      const uint32_t bits = (i == 0 ? fifths.x : i == 1 ? fifths.y : i == 2 ? fifths.z : fifths.w) >> lane.half_shift;
      const uint32_t fifth = (set == 0 ? bits << 4 : set == 1 ? bits << 3 : set == 2 ? bits : bits >> 1) & 0x10101010u;
      return ((set % 2 == 0 ? both : both >> 4) & 0x0F0F0F0Fu) | fifth;
    }
  };
};

struct Q5KPairs : KPairs<Q5K, 0> {
  struct Fragment {
    uint4 head;
    uint2 fifths;
    uint2 quants[4];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned fifths_at = 16;
      constexpr unsigned quants_at = 48;
      head = load_passing(reinterpret_cast<const uint4*>(block));
      fifths = load_passing(reinterpret_cast<const uint2*>(block + fifths_at + 8 * lane));
      load_k_quants(quants, block + quants_at, lane);
    }

    ZINC_DEVICE uint32_t word(unsigned group, unsigned i) const {
      const uint32_t both = i == 0 ? quants[group / 2].x : quants[group / 2].y;
      const uint32_t bits = i == 0 ? fifths.x : fifths.y;
      const uint32_t fifth = (group < 4 ? bits << (4 - group) : bits >> (group - 4)) & 0x10101010u;
      return ((group % 2 == 0 ? both : both >> 4) & 0x0F0F0F0Fu) | fifth;
    }
  };
};

}  // namespace zinc
