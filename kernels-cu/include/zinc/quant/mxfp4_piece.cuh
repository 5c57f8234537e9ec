// A block of an mxfp4 row as dmmv_few.cuh multiplies it.
#pragma once

#include "zinc/quant/block_piece.cuh"
#include "zinc/quant/mxfp4.cuh"

namespace zinc {

struct Mxfp4Piece : BlockPiece<false> {
  using Format = Mxfp4;
  static constexpr bool put_off = false;

  // Of rows that are a multiple of 256 columns, and begin 8-byte aligned: blocks are as far from aligned words in all.
  struct Place {
    uint32_t words;  // the aligned ones around the block
    uint32_t odd;

    explicit ZINC_DEVICE Place(uint32_t c) {
      const uint32_t block = c / Mxfp4::block_columns * Mxfp4::block_bytes;
      odd = block % 4;
      words = block - odd;
    }
    ZINC_DEVICE const Place& in(const uint8_t*) const { return *this; }
  };

  uint32_t words[5];

  ZINC_DEVICE void load(const uint8_t* row, const Place& place) {
#pragma unroll
    for (unsigned i = 0; i < 5; ++i) words[i] = load_u32(row + place.words + 4 * i);
  }

  ZINC_DEVICE uint32_t some() const { return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4]; }

  ZINC_DEVICE float dot(const Vector& vector, const Place& place) const {
    const uint32_t selector = 0x4321u + 0x1111u * place.odd;
    float dot[2] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t codes = permute_bytes(words[i], words[i + 1], selector);
      const float* const x = vector.x + 4 * i;
      dot[0] = dot_halves(Mxfp4::halves<0>(codes), x, dot[0]);
      dot[0] = dot_halves(Mxfp4::halves<2>(codes), x + 1, dot[0]);
      dot[1] = dot_halves(Mxfp4::halves<1>(codes), x + 16, dot[1]);
      dot[1] = dot_halves(Mxfp4::halves<3>(codes), x + 17, dot[1]);
    }
    return Mxfp4::weighted(dot[0] + dot[1], static_cast<uint8_t>(words[0] >> 8 * place.odd));
  }
};

}  // namespace zinc
