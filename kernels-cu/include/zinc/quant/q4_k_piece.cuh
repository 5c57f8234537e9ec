// 32 columns of a q4_K row as dmmv_few.cuh multiplies them.
#pragma once

#include "zinc/quant/k_piece.cuh"
#include "zinc/quant/q4_k.cuh"

namespace zinc {

struct Q4KPiece : KPiece {
  using Format = Q4K;
  static constexpr bool put_off = true;

  struct Place {
    uint32_t block;
    uint32_t quants;
    KPieceHead::Lane lane;

    explicit ZINC_DEVICE Place(uint32_t c)
        : block(c / Q4K::block_columns * Q4K::block_bytes), lane(c % Q4K::block_columns / 64) {
      constexpr unsigned quants_at = 16;
      quants = block + quants_at + c % Q4K::block_columns / 2;
    }
    ZINC_DEVICE const Place& in(const uint8_t*) const { return *this; }
  };

  KPieceHead head;
  uint4 quants;

  ZINC_DEVICE void load(const uint8_t* row, const Place& place) {
    head.load(row + place.block);
    quants = load_passing(reinterpret_cast<const uint4*>(row + place.quants));
  }

  ZINC_DEVICE uint32_t some() const { return head.words.x ^ quants.x; }

  ZINC_DEVICE float dot(const Vector& vector, const Place& place) const {
    const uint32_t words[4] = {quants.x, quants.y, quants.z, quants.w};
    float dot[2] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const float* const x = vector.x + 4 * i;
      const uint32_t odd = words[i] >> 8;
      dot[0] = dot_halves(words[i] & 0x000F000Fu, x, dot[0]);
      dot[0] = dot_halves(odd & 0x000F000Fu, x + 1, dot[0]);
      dot[1] = dot_halves(words[i] & 0x00F000F0u, x + 16, dot[1]);
      dot[1] = dot_halves(odd & 0x00F000F0u, x + 17, dot[1]);
    }
    return head.weighted<-24, -20>(dot, vector.sum, place.lane);
  }
};

}  // namespace zinc
