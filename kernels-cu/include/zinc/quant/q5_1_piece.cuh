// A block of a q5_1 row as dmmv_few.cuh multiplies it.
#pragma once

#include "zinc/quant/block_piece.cuh"
#include "zinc/quant/q5_1.cuh"

namespace zinc {

struct Q5_1Piece : BlockPiece<true> {
  using Format = Q5_1;
  static constexpr bool put_off = false;

  struct Place {
    uint32_t block;

    explicit ZINC_DEVICE Place(uint32_t c) : block(c / Q5_1::block_columns * Q5_1::block_bytes) {}
    ZINC_DEVICE const Place& in(const uint8_t*) const { return *this; }
  };

  uint2 head;  // f16 factor and minimum, fifth bits
  uint2 nibbles[2];

  ZINC_DEVICE void load(const uint8_t* row, const Place& place) {
    const uint2* const from = reinterpret_cast<const uint2*>(row + place.block);
    head = load_passing(from);
    nibbles[0] = load_passing(from + 1);
    nibbles[1] = load_passing(from + 2);
  }

  ZINC_DEVICE uint32_t some() const { return head.x ^ nibbles[0].x ^ nibbles[1].x; }

  ZINC_DEVICE float dot(const Vector& vector, const Place&) const {
    constexpr uint32_t pair = 0x001F001Fu;
    constexpr float unit = 16777216.0f;  // see dot_halves
    const uint32_t words[4] = {nibbles[0].x, nibbles[0].y, nibbles[1].x, nibbles[1].y};
    float dot[2] = {};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t low = head.y >> (i / 2 * 8);
      const uint32_t high = head.y >> (16 + i / 2 * 8);
      // Above the fifth bits is what does not matter.
      const uint32_t first =
          (words[i] & 0x0F0F0F0Fu) | ((i % 2 == 0 ? spread_bits<4>(low) : spread_bits<4, 4>(low)) & 0xF0F0F0F0u);
      const uint32_t second =
          (words[i] >> 4 & 0x0F0F0F0Fu) | ((i % 2 == 0 ? spread_bits<4>(high) : spread_bits<4, 4>(high)) & 0xF0F0F0F0u);
      const float* const x = vector.x + 4 * i;
      dot[0] = dot_halves(first & pair, x, dot[0]);
      dot[0] = dot_halves(first >> 8 & pair, x + 1, dot[0]);
      dot[1] = dot_halves(second & pair, x + 16, dot[1]);
      dot[1] = dot_halves(second >> 8 & pair, x + 17, dot[1]);
    }
    const float d = half_to_float(static_cast<uint16_t>(head.x)) * unit;
    const float minimum = half_to_float(static_cast<uint16_t>(head.x >> 16));
    return fmaf(d, dot[0] + dot[1], minimum * vector.sum);
  }
};

}  // namespace zinc
