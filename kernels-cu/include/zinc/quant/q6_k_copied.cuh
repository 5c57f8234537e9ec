// q6_K as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/copied.cuh"
#include "zinc/quant/q6_k.cuh"

namespace zinc {

// Of every 16 bytes of quants a lane has a word; see Q6K for where they are. Steps of odd number are not aligned to
// words: the first three lanes have the aligned words inside of 16 bytes, the last one what is left on both sides of
// these.
struct CopiedQ6K {
  using Format = Q6K;
  static constexpr bool across = true;
  static constexpr unsigned sides = 2;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = false;
  static constexpr bool rotates = true;
  static constexpr unsigned rotation_columns = 16;
  static constexpr unsigned most_rotation = 2;
  static constexpr unsigned step_bytes = Q6K::block_bytes;
  static constexpr unsigned row_columns = 2048;
  static constexpr unsigned pitch = 1680;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 3;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr unsigned ahead_of_two = 1;
  static constexpr bool late = true;

  static constexpr unsigned lows = 8;
  static constexpr unsigned highs = 4;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return part + 4 * i; }
  static ZINC_DEVICE unsigned rotation(uint32_t step, unsigned) { return step % 2 * 2; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word % 4 * 2 + word / 4; }

  uint32_t words[lows + highs];
  uint16_t scales[2];
  uint16_t factor;

  ZINC_DEVICE void load(SharedAddress row) {
    constexpr unsigned scales_at = 192;
    constexpr unsigned factor_at = 208;
    const unsigned part = lane_id() % 4;
    const bool odd = warp_id() % 2 != 0;
    const SharedAddress from = row + (4 * part + (odd ? 2 : 0));
    const uint32_t selector = odd && part == 3 ? 0x3254u : 0x7654u;
    uint32_t before = uint32_t{row.load_half()} << 16;
#pragma unroll
    for (unsigned j = 0; j < lows + highs; ++j) {
      const uint32_t word = (from + 16 * j).load();
      words[j] = permute_bytes(before, word, selector);
      before = word;
    }
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) scales[i] = (row + (scales_at + 2 * part + 8 * i)).load_half();
    factor = (row + factor_at).load_half();
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    const unsigned quarter = word % 4;  // of 128 columns
    const unsigned side = word / 4;     // of 32
    const bool upper = quarter >= 2;
    const uint32_t low = words[4 * i + quarter % 2 * 2 + side] >> (odd != 0 ? 8 : 0);
    const uint32_t high = words[lows + 2 * i + side] >> (odd != 0 ? 8 : 0);
    // 16 + low - 16 * (3 - high) is the quant less 32.
    const unsigned unit = upper ? 4 : 0;
    return subtract_rest(nibble_halves_and_16(low, upper), high, 3, 2 * quarter, 4 + unit);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float both =
          fmaf(SignedQuants::to_float(scales[i], 0), dots[i][0], SignedQuants::to_float(scales[i], 1) * dots[i][1]);
      sum = fmaf(columns.scale[i], both, sum);
    }
    return half_to_float(factor) * (lane_id() % 4 >= 2 ? power_float<20>() : power_float<24>()) * sum;
  }
};

}  // namespace zinc
