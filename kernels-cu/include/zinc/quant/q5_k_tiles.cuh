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

    ZINC_DEVICE uint32_t both(unsigned set, unsigned i) const {
      const uint4& q = quants[set / 2];
      return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
    }
    // Of which bits 0, 1, 4, 5 of each byte are those of the sets.
    ZINC_DEVICE uint32_t fifth_bits(unsigned i, const Lane& lane) const {
      return (i == 0 ? fifths.x : i == 1 ? fifths.y : i == 2 ? fifths.z : fifths.w) >> lane.half_shift;
    }
    ZINC_DEVICE uint32_t word(unsigned set, unsigned i, const Lane& lane) const {
      const uint32_t bits = fifth_bits(i, lane);
      const uint32_t fifth = (set == 0 ? bits << 4 : set == 1 ? bits << 3 : set == 2 ? bits : bits >> 1) & 0x10101010u;
      return ((set % 2 == 0 ? both(set, i) : both(set, i) >> 4) & 0x0F0F0F0Fu) | fifth;
    }
  };
};

struct Q5KHalves : KHalves<Q5K, 4> {
  struct Fragment : Q5KTiles::Fragment {
    ZINC_DEVICE uint32_t pair(unsigned set, unsigned i, unsigned odd, const Lane& lane) const {
      const uint32_t nibbles = both(set, i) >> (odd * 8);
      const uint32_t bits = fifth_bits(i, lane);
      // From the bit of the set to the one above its nibble.
      const unsigned from = odd * 8 + set / 2 * 4 + set % 2;
      const unsigned to = set % 2 == 0 ? 4 : 8;
      const uint32_t fifth = from < to ? bits << (to - from) : bits >> (from - to);
      return set % 2 == 0 ? (nibbles & 0x000F000Fu) | (fifth & 0x00100010u)
                          : (nibbles & 0x00F000F0u) | (fifth & 0x01000100u);
    }
  };
};

}  // namespace zinc
