// What the pieces of q4_K and q5_K rows share, as dmmv_few.cuh multiplies them: 32 columns, 16 of a sub-block and 16 of
// the next one, whose nibbles share 16 bytes.
#pragma once

#include "zinc/quant/dot_halves.cuh"
#include "zinc/quant/power.cuh"
#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

// A row's head, decoded by lanes that have the same two sub-blocks in all rows.
struct KPieceHead {
  // How a lane decodes the numbers of its two sub-blocks, 2 * pair and 2 * pair + 1; see KScales for where they are.
  struct Lane {
    uint32_t bytes;
    uint32_t top_shift;
    uint32_t top_mask;
    uint32_t low_mask;

    explicit ZINC_DEVICE Lane(unsigned pair) {
      const bool upper = pair >= 2;
      bytes = pair % 2 == 0 ? 0x5410u : 0x7632u;
      top_shift = upper ? 2 : 0;
      top_mask = upper ? 0x30303030u : 0x3F3F3F3Fu;
      low_mask = upper ? 0x0F0F0F0Fu : 0u;
    }
  };

  uint4 words;

  ZINC_DEVICE void load(const uint8_t* block) { words = load_passing(reinterpret_cast<const uint4*>(block)); }

  // Scale, scale, minimum, minimum of the lane's sub-blocks.
  ZINC_DEVICE uint32_t numbers(const Lane& lane) const {
    const uint32_t top = __byte_perm(words.y, words.z, lane.bytes) >> lane.top_shift;
    const uint32_t low = __byte_perm(words.w, words.w >> 4, lane.bytes);
    return (top & lane.top_mask) | (low & lane.low_mask);
  }

  // The sum over both sub-blocks of scale * dot - minimum * sum, where dot[i] is 2^unit_i of what it stands for, with
  // the first word of a head.
  template <int unit0, int unit1>
  static ZINC_DEVICE float weighted(const float (&dot)[2], const float (&sum)[2], uint32_t factors, uint32_t numbers) {
    const float d = half_to_float(static_cast<uint16_t>(factors)) * power_float<-unit0>();
    const float dmin = half_to_float(static_cast<uint16_t>(factors >> 16));
    const float scaled = fmaf(to_float<0>(numbers, 0), dot[0], to_float<unit0 - unit1>(numbers, 1) * dot[1]);
    const float least = fmaf(to_float<0>(numbers, 2), sum[0], to_float<0>(numbers, 3) * sum[1]);
    return fmaf(d, scaled, -dmin * least);
  }
  template <int unit0, int unit1>
  ZINC_DEVICE float weighted(const float (&dot)[2], const float (&sum)[2], const Lane& lane) const {
    return weighted<unit0, unit1>(dot, sum, words.x, numbers(lane));
  }

 private:
  // 2^exponent times byte i.
  template <int exponent>
  static ZINC_DEVICE float to_float(uint32_t bytes, unsigned i) {
    constexpr uint32_t one = static_cast<uint32_t>(127 + 23 + exponent) << 23;
    return __uint_as_float(__byte_perm(bytes, one, 0x7440u | i)) - __uint_as_float(one);
  }
};

// The vector of a piece: 16 columns of the first sub-block, 16 of the next.
struct KPieceVector {
  float x[32];
  float sum[2];

  explicit ZINC_DEVICE KPieceVector(const float4 (&fours)[8]) {
    unpack(x, fours);
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      float pairs[8];
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) pairs[i] = x[16 * s + 2 * i] + x[16 * s + 2 * i + 1];
      sum[s] = ((pairs[0] + pairs[1]) + (pairs[2] + pairs[3])) + ((pairs[4] + pairs[5]) + (pairs[6] + pairs[7]));
    }
  }
};

// What does not depend on the format.
struct KPiece {
  static constexpr unsigned columns = 32;
  static constexpr bool staged = true;
  using Vector = KPieceVector;

  static ZINC_DEVICE unsigned four(unsigned piece, unsigned i) {
    return piece / 2 * 16 + piece % 2 * 4 + i / 4 * 8 + i % 4;
  }
  static ZINC_DEVICE unsigned position(unsigned q) { return q ^ (q / 16 % 4); }
};

}  // namespace zinc
