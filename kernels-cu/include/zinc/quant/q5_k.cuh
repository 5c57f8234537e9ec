// GGML's q5_K: q4_K with a fifth bit per quant, 256 columns in 176 bytes.
#pragma once

#include "zinc/quant/k_scales.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q5K {
  static constexpr unsigned block_columns = 256;
  static constexpr unsigned block_bytes = 176;
  static constexpr unsigned run_distance = 32;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = true;
  static constexpr unsigned alignment = 4;
  static constexpr unsigned wide_alignment = 16;
  using Quants = BiasedQuants<0>;

  struct Unit {
    uint32_t head[4];
    uint32_t nibbles[run_words];
    uint32_t fifths[run_words];  // bit s of a byte belongs to sub-block s
    unsigned pair;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const {
      const uint32_t fifth = (fifths[i] >> (2 * pair + run)) & 0x01010101u;
      return ((nibbles[i] >> (4 * run)) & 0x0F0F0F0Fu) | (fifth << 4);
    }
    ZINC_DEVICE KScales scales() const { return KScales(head, pair); }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned part) {
    constexpr unsigned fifths_at = 16;
    constexpr unsigned quants_at = 48;
    Unit u;
    u.pair = part / 2;
    load_four_words<wide>(block, u.head);
    load_four_words<wide>(block + fifths_at + (part % 2) * run_columns, u.fifths);
    load_four_words<wide>(block + quants_at + part * run_columns, u.nibbles);
    return u;
  }
};
static_assert(Q5K::block_bytes == 2 + 2 + 12 + 32 + 128);
static_assert(Q5K::block_bytes % Q5K::wide_alignment == 0);

}  // namespace zinc
