// q5_K as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/k_copied.cuh"
#include "zinc/quant/q5_k.cuh"

namespace zinc {

struct CopiedQ5K : CopiedK<Q5K> {
  static constexpr unsigned pitch = 1424;
  static constexpr unsigned ahead_of_two = 1;

  uint32_t fifths[2];
  uint32_t nibbles[8];

  ZINC_DEVICE void load(SharedAddress row) {
    const SharedAddress from = row + 4 * (lane_id() % 4);
    load_head(row);
    load_words(fifths, from, 16);
    load_words(nibbles, from, 48);
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    const unsigned pair = word % 4;
    const unsigned side = word / 4;
    const unsigned shift = odd != 0 ? 8 : 0;
    return add_field(nibble_halves(nibbles[2 * pair + side] >> shift, i != 0), fifths[side] >> shift, 1, 2 * pair + i,
                     i == 0 ? 4 : 8);
  }
};

}  // namespace zinc
