// What q5_0 and q5_1 share as dmmv_copied.cuh multiplies them: the fifth bits of 32 columns are a word of their own.
#pragma once

#include "zinc/quant/copied.cuh"

namespace zinc {

// The fifth bits of two columns that are two apart, as bit `at` of both halves of `bits`.
struct FifthBit {
  uint32_t bits;
  unsigned at;

  // Of columns `column` and two more of the lower or upper 16 of a word.
  ZINC_DEVICE FifthBit(uint32_t fifths, bool upper, unsigned column) : at(column % 8) {
    // The bits of the 16 columns, and those that are two columns on.
    const uint32_t pairs =
        upper ? __byte_perm(fifths, fifths >> 2, 0x7632u) : __byte_perm(fifths, fifths << 14, 0x7610u);
    bits = column < 8 ? pairs : pairs >> 8;
  }

  // The dot product of both sides of a block, of quants that are 2^-24 or 2^-20 of what they stand for.
  static ZINC_DEVICE float both(const float (&sides)[2]) {
    return fmaf(sides[1], power_float<20>(), sides[0] * power_float<24>());
  }
};

}  // namespace zinc
