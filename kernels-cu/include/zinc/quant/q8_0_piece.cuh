// Eight columns of a q8_0 row as dmmv_few.cuh multiplies them.
#pragma once

#include "zinc/quant/q8_0.cuh"

namespace zinc {

struct Q8_0Piece {
  using Format = Q8_0;
  static constexpr unsigned columns = 8;
  static constexpr bool staged = false;

  struct Vector {
    float x[columns];

    explicit ZINC_DEVICE Vector(const float4 (&fours)[columns / 4]) {
#pragma unroll
      for (unsigned i = 0; i < columns / 4; ++i) {
        x[4 * i] = fours[i].x;
        x[4 * i + 1] = fours[i].y;
        x[4 * i + 2] = fours[i].z;
        x[4 * i + 3] = fours[i].w;
      }
    }
  };

  // Offsets from the start of a row, the same in all rows of a matrix: of the factor, of the aligned words from the
  // first quants on or two bytes before them, and of the last two quants.
  struct PlaceInMatrix {
    uint32_t factor;
    uint32_t words;
    uint32_t last;
    uint32_t selector;
  };

  struct Place {
    uint32_t factor;
    uint32_t quants;

    explicit ZINC_DEVICE Place(uint32_t c) : factor(c / Q8_0::block_columns * Q8_0::block_bytes) {
      constexpr unsigned quants_at = 2;
      quants = factor + quants_at + c % Q8_0::block_columns;
    }
    ZINC_DEVICE PlaceInMatrix in(const uint8_t* matrix) const {
      const uint32_t odd = (static_cast<uint32_t>(reinterpret_cast<uint64_t>(matrix)) + quants) & 2u;
      return {factor, quants - odd, quants + columns - 2, odd == 0 ? 0x3210u : 0x5432u};
    }
  };

  uint32_t words[2];
  uint16_t last;
  uint16_t factor;

  ZINC_DEVICE void load(const uint8_t* row, const PlaceInMatrix& place) {
    words[0] = load_u32(row + place.words);
    words[1] = load_u32(row + place.words + 4);
    last = load_u16(row + place.last);
    factor = load_u16(row + place.factor);
  }

  ZINC_DEVICE float dot(const Vector& vector, const PlaceInMatrix& place) const {
    const uint32_t quants[2] = {__byte_perm(words[0], words[1], place.selector),
                                __byte_perm(words[1], last, place.selector)};
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < columns; ++i) sum = fmaf(SignedQuants::to_float(quants[i / 4], i % 4), vector.x[i], sum);
    return half_to_float(factor) * sum;
  }
};

}  // namespace zinc
