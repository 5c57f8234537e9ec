// q5_1 as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/fifths_copied.cuh"
#include "zinc/quant/q5_1.cuh"

namespace zinc {

// A lane has two neighbouring blocks.
struct CopiedQ5_1 {
  using Format = Q5_1;
  static constexpr bool across = false;
  static constexpr unsigned sides = 2;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = true;
  static constexpr bool rotates = false;
  static constexpr unsigned step_bytes = step_columns / Q5_1::block_columns * Q5_1::block_bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned pitch = 1600;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 4;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr unsigned ahead_of_two = 1;
  static constexpr bool late = true;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word; }

  // Of a block: factors, fifth bits, four words of nibbles.
  static constexpr unsigned block_words = Q5_1::block_bytes / 4;
  uint32_t words[2 * block_words];

  ZINC_DEVICE void load(SharedAddress row) {
    const SharedAddress from = row + lane_id() % 4 * (2 * Q5_1::block_bytes);
#pragma unroll
    for (unsigned j = 0; j < 2 * block_words; j += 4) {
      const uint4 four = (from + 4 * j).load4();
      words[j] = four.x;
      words[j + 1] = four.y;
      words[j + 2] = four.z;
      words[j + 3] = four.w;
    }
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    const uint32_t* const own = words + block_words * i;
    const bool upper = word / 4 != 0;
    const FifthBit fifth(own[1], upper, 4 * (word % 4) + odd);
    return add_field(nibble_halves(own[2 + word % 4] >> (odd != 0 ? 8 : 0), upper), fifth.bits, 1, fifth.at,
                     upper ? 8 : 4);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint32_t factors = words[block_words * i];
      const float scaled = FifthBit::both(dots[i]) * columns.scale[i];
      sum = fmaf(half_to_float(static_cast<uint16_t>(factors)), scaled, sum);
      sum = fmaf(half_to_float(static_cast<uint16_t>(factors >> 16)), columns.sum[i], sum);
    }
    return sum;
  }
};

}  // namespace zinc
