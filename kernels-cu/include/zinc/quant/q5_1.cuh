// GGML's q5_1: 32 columns in 24 bytes, an f16 factor, an f16 minimum that is added, 5-bit quants.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q5_1 {
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned block_bytes = 24;
  static constexpr unsigned run_distance = 16;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = true;
  static constexpr unsigned alignment = 4;
  static constexpr unsigned wide_alignment = 4;
  using Quants = BiasedQuants<0>;

  struct Scales {
    float scale[2];
    float minimum[2];
  };

  struct Unit {
    uint32_t factors;
    uint32_t fifths;  // in column order
    uint32_t nibbles[run_words];

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const {
      return ((nibbles[i] >> (4 * run)) & 0x0F0F0F0Fu) | spread_fifth_bits(fifths >> (run_columns * run + 4 * i));
    }
    // Formats subtract their minimum; this one adds it.
    ZINC_DEVICE Scales scales() const {
      const float d = half_to_float(static_cast<uint16_t>(factors));
      const float m = half_to_float(static_cast<uint16_t>(factors >> 16));
      return {{d, d}, {-m, -m}};
    }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned) {
    constexpr unsigned fifths_at = 4;
    constexpr unsigned quants_at = 8;
    Unit u;
    u.factors = load_u32(block);
    u.fifths = load_u32(block + fifths_at);
    load_four_words<false>(block + quants_at, u.nibbles);
    return u;
  }
};
static_assert(Q5_1::block_bytes == 2 + 2 + 4 + 16);

}  // namespace zinc
