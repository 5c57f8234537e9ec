// q4_K as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/copied.cuh"
#include "zinc/quant/k_piece.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

// Of every 16 bytes of quants a lane has a word.
struct CopiedQ4K {
  using Format = Q4K;
  static constexpr bool across = true;
  static constexpr unsigned sides = 1;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = true;
  static constexpr bool rotates = false;
  static constexpr unsigned step_bytes = Q4K::block_bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned pitch = 1168;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 4;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr unsigned ahead_of_two = room_of_two;
  static constexpr bool late = true;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word % 4 * 2 + word / 4; }

  uint32_t factors;
  uint32_t numbers;  // of the lane's two sub-blocks
  uint32_t nibbles[8];

  ZINC_DEVICE void load(SharedAddress row) {
    constexpr unsigned nibbles_at = 16;
    const SharedAddress from = row + 4 * (lane_id() % 4);
    const KPieceHead head{row.load4()};
    factors = head.words.x;
    numbers = head.numbers(KPieceHead::Lane(lane_id() % 4));
#pragma unroll
    for (unsigned j = 0; j < 8; ++j) nibbles[j] = (from + (nibbles_at + 16 * j)).load();
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    return nibble_halves(nibbles[2 * (word % 4) + word / 4] >> (odd != 0 ? 8 : 0), i != 0);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float scaled[2];
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) scaled[i] = dots[i][0] * columns.scale[i];
    return KPieceHead::weighted<-24, -20>(scaled, columns.sum, factors, numbers);
  }
};

}  // namespace zinc
