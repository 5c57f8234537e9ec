// What a lane has of a q4_K row as dmmv_few_halves.cuh multiplies them: two neighbouring sub-blocks, whose nibbles
// share 32 bytes. Quants in the last bits of halves are 2^-24 of them, exactly: one mask makes two.
#pragma once

#include "zinc/quant/k_piece.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

struct Q4KPair {
  using Format = Q4K;
  static constexpr bool has_minimum = true;
  static constexpr bool rotates = false;
  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word; }
  static ZINC_DEVICE unsigned part() { return lane_id() % 4; }

  static ZINC_DEVICE void load(uint32_t (&words)[8], const uint8_t* from) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint4 four = load_passing(reinterpret_cast<const uint4*>(from) + i);
      words[4 * i] = four.x;
      words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z;
      words[4 * i + 3] = four.w;
    }
  }

  KPieceHead head;
  uint32_t quants[8];

  ZINC_DEVICE void load(const uint8_t* block) {
    constexpr unsigned quants_at = 16;
    head.load(block);
    load(quants, block + (quants_at + 32 * part()));
  }
  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    return (odd != 0 ? quants[word] >> 8 : quants[word]) & (i == 0 ? 0x000F000Fu : 0x00F000F0u);
  }
  ZINC_DEVICE float weighted(const float (&dots)[2], const float (&sums)[2]) const {
    return head.weighted<-24, -20>(dots, sums, KPieceHead::Lane(part()));
  }
};

}  // namespace zinc
