// What q4_K and q5_K share as dmmv_copied.cuh multiplies them: the head of a step, and nibbles.
#pragma once

#include "zinc/quant/copied.cuh"
#include "zinc/quant/k_piece.cuh"

namespace zinc {

// Of every 16 bytes of quants a lane has a word.
template <class Format_>
struct CopiedK {
  using Format = Format_;
  static constexpr bool across = true;
  static constexpr unsigned sides = 1;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = true;
  static constexpr bool rotates = false;
  static constexpr unsigned step_bytes = Format::block_bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 4;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr bool late = true;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word % 4 * 2 + word / 4; }

  uint32_t factors;
  uint32_t numbers;  // of the lane's two sub-blocks

  ZINC_DEVICE void load_head(SharedAddress row) {
    const KPieceHead head{row.load4()};
    factors = head.words.x;
    numbers = head.numbers(KPieceHead::Lane(lane_id() % 4));
  }

  // The lane's words of quants of which its first word lies at byte `at` from `from` on.
  template <unsigned count>
  static ZINC_DEVICE void load_words(uint32_t (&words)[count], SharedAddress from, unsigned at) {
#pragma unroll
    for (unsigned j = 0; j < count; ++j) words[j] = (from + (at + 16 * j)).load();
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
