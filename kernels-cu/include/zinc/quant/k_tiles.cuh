// What q4_K and q5_K share, as dmmv_tiles.cuh uses it: the 16-byte head, and how lanes divide the quants.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/half.cuh"
#include "zinc/quant/words.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// Lanes 0 and 1 of a quad hold an even 32-byte chunk of quants, 2 and 3 the next; a chunk's low nibbles are one
// sub-block, its high nibbles the next one. These are the sets 2 i (low) and 2 i + 1 of the chunks 2 i and 2 i + 1.
ZINC_DEVICE unsigned k_tile_position(unsigned column) {
  const unsigned chunk = column / 64;
  const unsigned high = column / 32 % 2;
  return (chunk / 2 * 2 + high) * set_columns + chunk % 2 * 32 + column % 32;
}

// What differs between the lanes of a quad: how they decode the head.
struct KTileLane {
  uint32_t low_bytes;
  uint32_t top_bytes;
  uint32_t half_shift;
  uint32_t whole_mask;
  uint32_t low_mask;
  uint32_t minimum_bytes;

  explicit ZINC_DEVICE KTileLane(unsigned lane, bool hold) {
    const bool second = lane >= 2;
    low_bytes = held(second ? 0x7632u : 0x5410u, hold);
    top_bytes = held(second ? 0x3232u : 0x1010u, hold);
    half_shift = held(second ? 2 : 0, hold);
    whole_mask = held(second ? 0x30303030u : 0x3F3F3F3Fu, hold);
    low_mask = held(second ? 0x0F0F0F0Fu : 0u, hold);
    minimum_bytes = held(0x7440u + lane % 2 * 2, hold);
  }
};

// Scales and minimums of the sub-blocks 4 to 7 as bytes, of which the head has the upper two bits beside those of 0
// to 3.
ZINC_DEVICE uint32_t k_later_scales(const uint4& head) {
  return (head.w & 0x0F0F0F0Fu) | ((head.y >> 2) & 0x30303030u);
}

// How the lanes of a quad decode the head for pairs of vectors: all need all scales, those of even and odd place the
// minimums of the first and the last four sub-blocks.
struct KPairLane {
  uint32_t half_shift;
  uint32_t whole_mask;
  uint32_t low_mask;

  explicit ZINC_DEVICE KPairLane(unsigned lane, bool hold) {
    const bool second = lane % 2 == 1;
    half_shift = held(second ? 2 : 0, hold);
    whole_mask = held(second ? 0x30303030u : 0x3F3F3F3Fu, hold);
    low_mask = held(second ? 0x0F0F0F0Fu : 0u, hold);
  }
};

// The factors of a row: weight = outer * scale[group] * q - outer_minimum * minimum[group]. Those of odd groups are for
// 2^odd_bits times the quants.
template <unsigned odd_bits>
struct KPairFactors {
  float outer;
  float outer_minimum;
  float scale[step_columns / 32];
  float minimum[4];

  template <class Fragment>
  ZINC_DEVICE KPairFactors(const Fragment& row, const KPairLane& lane) {
    const uint4& head = row.head;
    outer = half_to_float(static_cast<uint16_t>(head.x));
    outer_minimum = half_to_float(static_cast<uint16_t>(head.x >> 16));
    const uint32_t scales[2] = {head.y & 0x3F3F3F3Fu, k_later_scales(head)};
    const uint32_t minimums = ((head.z >> lane.half_shift) & lane.whole_mask) | ((head.w >> 4) & lane.low_mask);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      scale[i] = i % 2 == 0 ? byte<0>(scales[0], i) : byte<odd_bits>(scales[0], i);
      scale[4 + i] = i % 2 == 0 ? byte<0>(scales[1], i) : byte<odd_bits>(scales[1], i);
      minimum[i] = byte<0>(minimums, i);
    }
  }

 private:
  // Byte i divided by 2^bits: as the last bits of a float that is 2^(23 - bits) larger.
  template <unsigned bits>
  static ZINC_DEVICE float byte(uint32_t bytes, unsigned i) {
    constexpr uint32_t large = (127u + 23 - bits) << 23;
    return __uint_as_float(__byte_perm(bytes, large, 0x7650u + i)) - static_cast<float>(1u << (23 - bits));
  }
};

// The factors of a row: weight = outer * scale[set] * q - outer_minimum * minimum, the minimums being those of the
// groups 2 * lane and 2 * lane + 1.
struct KTileFactors {
  float outer;
  float outer_minimum;
  float scale[step_sets];
  float minimum[2];

  template <class Fragment>
  ZINC_DEVICE KTileFactors(const Fragment& row, const KTileLane& lane) {
    const uint4& head = row.head;
    outer = half_to_float(static_cast<uint16_t>(head.x));
    outer_minimum = half_to_float(static_cast<uint16_t>(head.x >> 16));
    // head.y: scales 0..3, head.z: minimums 0..3, both with two bits of 4..7 on top; head.w: four bits each of
    // scales and minimums 4..7. A lane's scales are 2 h, 2 h + 1, 4 + 2 h, 5 + 2 h of its half h, its minimums come
    // from the first four or the last four.
    const uint32_t low = __byte_perm(head.y, head.w, lane.low_bytes);
    const uint32_t top = __byte_perm(head.y, head.y, lane.top_bytes) >> 2;
    const uint32_t scales = (low & 0x0F0F3F3Fu) | (top & 0x30300000u);
#pragma unroll
    for (unsigned s = 0; s < step_sets; ++s) scale[s] = BiasedQuants<0>::to_float(scales, s);
    const uint32_t minimums = ((head.z >> lane.half_shift) & lane.whole_mask) | ((head.w >> 4) & lane.low_mask);
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      minimum[i] = __uint_as_float(__byte_perm(minimums, 0x4B000000u, lane.minimum_bytes + i)) - 8388608.0f;
    }
  }
};

// The lane's part of every `count`th of the quants, which the four lanes of a quad share.
template <class Words, unsigned count>
ZINC_DEVICE void load_k_quants(Words (&to)[count], const uint8_t* quants, unsigned lane) {
  constexpr unsigned size = sizeof(Words);
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    to[i] = load_passing(reinterpret_cast<const Words*>(quants + 4 * size * i + size * lane));
  }
}

// A format's tiles add Fragment, with the head of the block, and set_scale.
template <class Format_>
struct KTiles {
  using Format = Format_;
  using Row = uint8_t;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool pairs = false;
  static constexpr bool interleaved = false;
  static constexpr unsigned parts = 1;
  static constexpr bool has_minimum = true;
  static constexpr unsigned step_bytes = Format::block_bytes;
  static constexpr unsigned alignment = 16;
  static constexpr unsigned pitch = 0;
  static constexpr bool has_outer = true;

  static ZINC_DEVICE unsigned position(unsigned column) { return k_tile_position(column); }

  using Lane = KTileLane;
  using Factors = KTileFactors;
};

// The same for pairs of vectors: a lane has eight columns of each sub-block. Fragment's quants of odd sub-blocks are
// 2^odd_bits times as large.
template <class Format_, unsigned odd_bits>
struct KPairs {
  using Format = Format_;
  using Row = uint8_t;
  static constexpr bool has_minimum = true;
  static constexpr bool pairs = true;
  static constexpr unsigned step_bytes = Format::block_bytes;
  static constexpr unsigned alignment = 16;
  static constexpr unsigned pitch = 0;

  using Lane = KPairLane;
  using Factors = KPairFactors<odd_bits>;
};

}  // namespace zinc
