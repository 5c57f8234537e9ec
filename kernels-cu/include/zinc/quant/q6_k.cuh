// GGML's q6_K: 256 columns in 210 bytes, sixteen sub-blocks of 16 with signed 8-bit scales, 6-bit quants around 32.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Q6K {
  static constexpr unsigned block_columns = 256;
  static constexpr unsigned block_bytes = 210;
  static constexpr unsigned run_distance = 64;
  static constexpr unsigned scale_columns = 16;
  static constexpr bool has_minimum = false;
  static constexpr unsigned alignment = 2;
  static constexpr unsigned wide_alignment = 2;
  using Quants = BiasedQuants<32>;

  struct ScalePair {
    float scale[2];
  };

  // 16 low bytes hold the low nibbles of columns 64 apart; the upper two bits of both lie in the same 16 high bytes.
  struct Unit {
    uint32_t low[run_words];
    uint32_t high[run_words];
    unsigned high_shift;
    int32_t integer_scale[2];
    uint16_t d;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const {
      const uint32_t upper = (high[i] >> (high_shift + 4 * run)) & 0x03030303u;
      return ((low[i] >> (4 * run)) & 0x0F0F0F0Fu) | (upper << 4);
    }
    ZINC_DEVICE ScalePair scales() const {
      const float factor = half_to_float(d);
      return {{factor * static_cast<float>(integer_scale[0]), factor * static_cast<float>(integer_scale[1])}};
    }
  };

  // Blocks are only 2-byte aligned. Both quant fields are followed by others, so the spare bytes are there.
  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned part) {
    constexpr unsigned high_at = 128;
    constexpr unsigned scales_at = 192;
    constexpr unsigned d_at = 208;
    const unsigned half = part / 4;         // 128 columns each
    const unsigned quarter = part / 2 % 2;  // 32 columns; the second run is two quarters on
    const unsigned side = part % 2;         // 16 columns
    Unit u;
    u.high_shift = 2 * quarter;
    load_even_words<Spare::after>(block + part * run_columns, u.low);
    load_even_words<Spare::after>(block + high_at + 32 * half + run_columns * side, u.high);
    const int8_t* const scales = reinterpret_cast<const int8_t*>(block + scales_at) + 8 * half + 2 * quarter + side;
    u.integer_scale[0] = __ldg(scales);
    u.integer_scale[1] = __ldg(scales + run_distance / run_columns);
    u.d = load_u16(block + d_at);
    return u;
  }
};
static_assert(Q6K::block_bytes == 128 + 64 + 16 + 2);

}  // namespace zinc
