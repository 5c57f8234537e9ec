// 32 columns of a q5_K row as dmmv_few.cuh multiplies them.
#pragma once

#include "zinc/quant/k_piece.cuh"
#include "zinc/quant/q5_k.cuh"

namespace zinc {

struct Q5KPiece : KPiece {
  using Format = Q5K;
  static constexpr bool put_off = false;

  struct Place {
    uint32_t block;
    uint32_t fifths;
    uint32_t quants;
    uint32_t rotation;
    KPieceHead::Lane lane;

    explicit ZINC_DEVICE Place(uint32_t c)
        : block(c / Q5K::block_columns * Q5K::block_bytes), lane(c % Q5K::block_columns / 64) {
      constexpr unsigned fifths_at = 16;
      constexpr unsigned quants_at = 48;
      fifths = block + fifths_at + c % 64 / 2;
      quants = block + quants_at + c % Q5K::block_columns / 2;
      rotation = (4 - c % Q5K::block_columns / 64 * 2) % 32;
    }
    ZINC_DEVICE const Place& in(const uint8_t*) const { return *this; }
  };

  KPieceHead head;
  uint4 fifths;
  uint4 quants;

  ZINC_DEVICE void load(const uint8_t* row, const Place& place) {
    head.load(row + place.block);
    fifths = load_passing(reinterpret_cast<const uint4*>(row + place.fifths));
    quants = load_passing(reinterpret_cast<const uint4*>(row + place.quants));
  }

  ZINC_DEVICE uint32_t some() const { return head.words.x ^ fifths.x ^ quants.x; }

  ZINC_DEVICE float dot(const Vector& vector, const Place& place) const {
    const uint32_t words[4] = {quants.x, quants.y, quants.z, quants.w};
    const uint32_t bits[4] = {fifths.x, fifths.y, fifths.z, fifths.w};
    float dot[2] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      // In each byte the fifth bit of the first sub-block is bit 4 now, that of the second bit 5.
      const uint32_t fifth = __funnelshift_l(bits[i], bits[i], place.rotation);
      const uint32_t first = (words[i] & 0x0F0F0F0Fu) | (fifth & 0xF0F0F0F0u);
      const uint32_t second = (words[i] >> 4 & 0x0F0F0F0Fu) | (fifth >> 1 & 0xF0F0F0F0u);
      const float* const x = vector.x + 4 * i;
      dot[0] = dot_halves(first & 0x001F001Fu, x, dot[0]);
      dot[0] = dot_halves(first >> 8 & 0x001F001Fu, x + 1, dot[0]);
      dot[1] = dot_halves(second & 0x001F001Fu, x + 16, dot[1]);
      dot[1] = dot_halves(second >> 8 & 0x001F001Fu, x + 17, dot[1]);
    }
    return head.weighted<-24, -24>(dot, vector.sum, place.lane);
  }
};

}  // namespace zinc
