// What the formats share that dmmv_copied.cuh multiplies.
//
// A quant in the last bits of a half is 2^-24 of it, exactly, and ten bits have room: quants need not be shifted, only
// be masked, and what a word has as two fields in different places is added by a multiply-add with a power of two.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/half.cuh"
#include "zinc/logic.cuh"
#include "zinc/quant/power.cuh"
#include "zinc/quant/staged_row.cuh"

namespace zinc {

// `bits` in both halves of a word.
ZINC_DEVICE constexpr uint32_t both_halves(uint32_t bits) { return bits << 16 | bits; }

// 2^exponent in both halves.
ZINC_DEVICE constexpr uint32_t power_halves(int exponent) {
  return both_halves(static_cast<uint32_t>(15 + exponent) << 10);
}

// Nibbles of a word's bytes 0 and 2, or of 1 and 3 where that is shifted to there: of the lower nibbles, or 16 times
// the upper ones.
ZINC_DEVICE uint32_t nibble_halves(uint32_t word, bool upper) {
  return word & (upper ? both_halves(0x00F0u) : both_halves(0x000Fu));
}
// The same plus 16.
ZINC_DEVICE uint32_t nibble_halves_and_16(uint32_t word, bool upper) {
  return upper ? and_xor(word, both_halves(0x00F0u), both_halves(0x0100u))
               : and_xor(word, both_halves(0x000Fu), both_halves(0x0010u));
}

// quants + field * 2^weight, where the field is the bits `mask` << at of both halves of `bits`.
ZINC_DEVICE uint32_t add_field(uint32_t quants, uint32_t bits, uint32_t mask, unsigned at, unsigned weight) {
  const uint32_t field = bits & both_halves(mask << at);
  return exact_halves(field, power_halves(static_cast<int>(weight) - static_cast<int>(at)), quants);
}

// quants - (mask - field) * 2^weight.
ZINC_DEVICE uint32_t subtract_rest(uint32_t quants, uint32_t bits, uint32_t mask, unsigned at, unsigned weight) {
  const uint32_t all = both_halves(mask << at);
  const uint32_t rest = and_xor(bits, all, both_halves(0x8000u) | all);  // negative
  return exact_halves(rest, power_halves(static_cast<int>(weight) - static_cast<int>(at)), quants);
}

}  // namespace zinc
