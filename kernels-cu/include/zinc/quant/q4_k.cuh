// GGML's q4_K: 256 columns in 144 bytes, eight sub-blocks of 32 with 6-bit scale and minimum, 4-bit quants.
#pragma once

#include "zinc/quant/k_scales.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q4K {
  static constexpr unsigned block_columns = 256;
  static constexpr unsigned block_bytes = 144;
  static constexpr unsigned run_distance = 32;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = true;
  static constexpr unsigned alignment = 4;
  static constexpr unsigned wide_alignment = 16;
  using Quants = BiasedQuants<0>;

  // Half a 32-byte chunk: the low nibbles belong to one sub-block, the high nibbles to the next.
  struct Unit {
    uint32_t head[4];
    uint32_t nibbles[run_words];
    unsigned pair;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const { return (nibbles[i] >> (4 * run)) & 0x0F0F0F0Fu; }
    ZINC_DEVICE KScales scales() const { return KScales(head, pair); }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned part) {
    constexpr unsigned quants_at = 16;
    Unit u;
    u.pair = part / 2;
    load_four_words<wide>(block, u.head);
    load_four_words<wide>(block + quants_at + part * run_columns, u.nibbles);
    return u;
  }
};
static_assert(Q4K::block_bytes == 2 + 2 + 12 + 128);
static_assert(Q4K::block_bytes % Q4K::wide_alignment == 0);

}  // namespace zinc
