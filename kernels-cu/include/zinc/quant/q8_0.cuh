// GGML's q8_0: 32 columns in 34 bytes, an f16 factor and signed bytes.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q8_0 {
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned block_bytes = 34;
  static constexpr unsigned run_distance = 16;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = false;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned wide_alignment = 2;
  using Quants = SignedQuants;

  struct ScalePair {
    float scale[2];
  };

  struct Unit {
    uint32_t bytes[2 * run_words];
    uint16_t d;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const { return bytes[run_words * run + i]; }
    ZINC_DEVICE ScalePair scales() const { return {{half_to_float(d), half_to_float(d)}}; }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned) {
    constexpr unsigned quants_at = 2;
    Unit u;
    u.d = load_u16(block);
    load_even_words<Spare::before>(block + quants_at, u.bytes);
    return u;
  }
};
static_assert(Q8_0::block_bytes == 2 + 32);

}  // namespace zinc
