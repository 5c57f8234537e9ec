// q4_K as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/k_copied.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

struct CopiedQ4K : CopiedK<Q4K> {
  static constexpr unsigned pitch = 1168;
  static constexpr unsigned ahead_of_two = room_of_two;

  uint32_t nibbles[8];

  ZINC_DEVICE void load(SharedAddress row) {
    const SharedAddress from = row + 4 * (lane_id() % 4);
    load_head(row);
    load_words(nibbles, from, 16);
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    return nibble_halves(nibbles[2 * (word % 4) + word / 4] >> (odd != 0 ? 8 : 0), i != 0);
  }
};

}  // namespace zinc
