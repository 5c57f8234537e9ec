<<<<<<< HEAD
// What a lane has of q4_K and q5_K rows as dmmv_few_halves.cuh multiplies them: two neighbouring sub-blocks, whose nibbles
=======
// What a lane has of a q4_K row as dmmv_few_halves.cuh multiplies them: two neighbouring sub-blocks, whose nibbles
>>>>>>> mv
// share 32 bytes. Quants in the last bits of halves are 2^-24 of them, exactly: one mask makes two.
#pragma once

#include "zinc/quant/k_piece.cuh"
#include "zinc/quant/q4_k.cuh"
<<<<<<< HEAD
#include "zinc/quant/q5_k.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// What does not depend on the format: the order of columns, and words of bytes.
struct KPair {
=======

namespace zinc {

struct Q4KPair {
  using Format = Q4K;
>>>>>>> mv
  static constexpr bool has_minimum = true;
  static constexpr bool rotates = false;
  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return 2 * part + i; }
  static ZINC_DEVICE bool rotated(unsigned) { return false; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word; }
  static ZINC_DEVICE unsigned part() { return lane_id() % 4; }

<<<<<<< HEAD
  static ZINC_DEVICE void load(uint32_t (&words)[8], SharedAddress from) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint4 four = (from + 16 * i).load4();
=======
  static ZINC_DEVICE void load(uint32_t (&words)[8], const uint8_t* from) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint4 four = load_passing(reinterpret_cast<const uint4*>(from) + i);
>>>>>>> mv
      words[4 * i] = four.x;
      words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z;
      words[4 * i + 3] = four.w;
    }
  }
<<<<<<< HEAD
};

struct Q4KPair : KPair {
  using Format = Q4K;
=======
>>>>>>> mv

  KPieceHead head;
  uint32_t quants[8];

<<<<<<< HEAD
  ZINC_DEVICE void load(SharedAddress block) {
    constexpr unsigned quants_at = 16;
    head.words = block.load4();
    KPair::load(quants, block + (quants_at + 32 * part()));
=======
  ZINC_DEVICE void load(const uint8_t* block) {
    constexpr unsigned quants_at = 16;
    head.load(block);
    load(quants, block + (quants_at + 32 * part()));
>>>>>>> mv
  }
  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    return (odd != 0 ? quants[word] >> 8 : quants[word]) & (i == 0 ? 0x000F000Fu : 0x00F000F0u);
  }
  ZINC_DEVICE float weighted(const float (&dots)[2], const float (&sums)[2]) const {
    return head.weighted<-24, -20>(dots, sums, KPieceHead::Lane(part()));
  }
};

<<<<<<< HEAD
struct Q5KPair : KPair {
  using Format = Q5K;

  KPieceHead head;
  uint32_t fifths[8];
  uint32_t quants[8];

  ZINC_DEVICE void load(SharedAddress block) {
    constexpr unsigned fifths_at = 16;
    constexpr unsigned quants_at = 48;
    head.words = block.load4();
    KPair::load(fifths, block + fifths_at);
    KPair::load(quants, block + (quants_at + 32 * part()));
  }
  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    // In each byte the fifth bit of the first sub-block becomes bit 4, that of the second one bit 5.
    const uint32_t fifth = __funnelshift_l(fifths[word], fifths[word], (4 - 2 * part()) % 32);
    const uint32_t bytes = i == 0 ? (quants[word] & 0x0F0F0F0Fu) | (fifth & 0xF0F0F0F0u)
                                  : (quants[word] >> 4 & 0x0F0F0F0Fu) | (fifth >> 1 & 0xF0F0F0F0u);
    return (odd != 0 ? bytes >> 8 : bytes) & 0x001F001Fu;
  }
  ZINC_DEVICE float weighted(const float (&dots)[2], const float (&sums)[2]) const {
    return head.weighted<-24, -24>(dots, sums, KPieceHead::Lane(part()));
  }
};

=======
>>>>>>> mv
}  // namespace zinc
