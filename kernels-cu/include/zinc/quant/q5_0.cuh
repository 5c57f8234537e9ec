// GGML's q5_0: 32 columns in 22 bytes, an f16 factor, 5-bit quants around 16.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q5_0 {
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned block_bytes = 22;
  static constexpr unsigned run_distance = 16;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = false;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned wide_alignment = 2;
  using Quants = BiasedQuants<16>;

  struct ScalePair {
    float scale[2];
  };

  // payload[0] holds the fifth bits in column order; then nibbles, low ones of columns 0..15, high ones of 16..31.
  struct Unit {
    uint32_t payload[1 + run_words];
    uint16_t d;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const {
      const uint32_t nibbles = (payload[1 + i] >> (4 * run)) & 0x0F0F0F0Fu;
      return nibbles | spread_fifth_bits(payload[0] >> (run_columns * run + 4 * i));
    }
    ZINC_DEVICE ScalePair scales() const { return {{half_to_float(d), half_to_float(d)}}; }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned) {
    constexpr unsigned payload_at = 2;
    Unit u;
    u.d = load_u16(block);
    load_even_words<Spare::before>(block + payload_at, u.payload);
    return u;
  }
};
static_assert(Q5_0::block_bytes == 2 + 4 + 16);

}  // namespace zinc
