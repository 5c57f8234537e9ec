// What the pieces of formats with blocks of 32 columns share, as dmmv_few.cuh multiplies them: one block. The 16 bytes
// of its nibbles have columns 0 .. 15 in their low halves, 16 .. 31 in their high ones.
#pragma once

#include "zinc/quant/dot_halves.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

template <bool summed>
struct BlockPieceVector {
  float x[32];
  float sum = 0.0f;

  explicit ZINC_DEVICE BlockPieceVector(const float4 (&fours)[8]) {
    unpack(x, fours);
    if constexpr (summed) {
      float sums[8];
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) sums[i] = (fours[i].x + fours[i].y) + (fours[i].z + fours[i].w);
      sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
  }
};

// `summed` where the format has a minimum.
template <bool summed>
struct BlockPiece {
  static constexpr unsigned columns = 32;
  static constexpr bool staged = true;
  using Vector = BlockPieceVector<summed>;

  static ZINC_DEVICE unsigned four(unsigned piece, unsigned i) { return 8 * piece + i; }
  static ZINC_DEVICE unsigned position(unsigned q) { return q ^ (q / 8 % 8); }
};

}  // namespace zinc
