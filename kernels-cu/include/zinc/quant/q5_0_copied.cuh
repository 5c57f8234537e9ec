// q5_0 as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/fifths_copied.cuh"
#include "zinc/quant/q5_0.cuh"

namespace zinc {

// A lane has two neighbouring blocks, of which the first one's nibbles are not aligned to words: what is left on both
// sides of the aligned words is the last word.
struct CopiedQ5_0 {
  using Format = Q5_0;
  static constexpr bool across = false;
  static constexpr unsigned sides = 2;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = false;
  static constexpr bool rotates = true;
  static constexpr unsigned rotation_columns = 16;
  static constexpr unsigned most_rotation = 2;
  static constexpr unsigned step_bytes = step_columns / Q5_0::block_columns * Q5_0::block_bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned pitch = 1424;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 3;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr unsigned ahead_of_two = 1;
  static constexpr bool late = true;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE unsigned rotation(uint32_t, unsigned block) { return block % 2 == 0 ? 2 : 0; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word; }

  uint32_t fifths[2];
  uint32_t nibbles[2][4];
  uint16_t factors[2];

  ZINC_DEVICE void load(SharedAddress row) {
    constexpr unsigned count = 2 * Q5_0::block_bytes / 4;
    const SharedAddress from = row + lane_id() % 4 * (2 * Q5_0::block_bytes);
    uint32_t words[count];
#pragma unroll
    for (unsigned j = 0; j < count; ++j) words[j] = (from + 4 * j).load();
    factors[0] = static_cast<uint16_t>(words[0]);
    factors[1] = static_cast<uint16_t>(words[5] >> 16);
    // In the order of the rotated columns.
    const uint32_t first = __byte_perm(words[0], words[1], 0x5432u);
    fifths[0] = (first >> 2 & both_halves(0x3FFFu)) | (first << 14 & both_halves(0xC000u));
    fifths[1] = words[6];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      nibbles[0][j] = j < 3 ? words[2 + j] : __byte_perm(words[5], words[1], 0x7610u);
      nibbles[1][j] = words[7 + j];
    }
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    const bool upper = word / 4 != 0;
    const FifthBit fifth(fifths[i], upper, 4 * (word % 4) + odd);
    // The quant less 16.
    return subtract_rest(nibble_halves(nibbles[i][word % 4] >> (odd != 0 ? 8 : 0), upper), fifth.bits, 1, fifth.at,
                         upper ? 8 : 4);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float scaled = FifthBit::both(dots[i]) * columns.scale[i];
      sum = fmaf(half_to_float(factors[i]), scaled, sum);
    }
    return sum;
  }
};

}  // namespace zinc
