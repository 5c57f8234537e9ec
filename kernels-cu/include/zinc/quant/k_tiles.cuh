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
  uint32_t minimum_pair;

  explicit ZINC_DEVICE KTileLane(unsigned lane, bool hold) {
    const bool second = lane >= 2;
    low_bytes = held(second ? 0x7632u : 0x5410u, hold);
    top_bytes = held(second ? 0x3232u : 0x1010u, hold);
    half_shift = held(second ? 2 : 0, hold);
    whole_mask = held(second ? 0x30303030u : 0x3F3F3F3Fu, hold);
    low_mask = held(second ? 0x0F0F0F0Fu : 0u, hold);
    minimum_bytes = held(0x7440u + lane % 2 * 2, hold);
    minimum_pair = held(lane % 2 == 0 ? 0x4140u : 0x4342u, hold);
  }

  // head.y: scales 0..3, head.z: minimums 0..3, both with two bits of 4..7 on top; head.w: four bits each of scales and
  // minimums 4..7. A lane's scales are 2 h, 2 h + 1, 4 + 2 h, 5 + 2 h of its half h, one for each set.
  ZINC_DEVICE uint32_t scales(const uint4& head) const {
    const uint32_t low = __byte_perm(head.y, head.w, low_bytes);
    const uint32_t top = __byte_perm(head.y, head.y, top_bytes) >> 2;
    return (low & 0x0F0F3F3Fu) | (top & 0x30300000u);
  }
  // Its minimums are among the first four or the last four.
  ZINC_DEVICE uint32_t minimums(const uint4& head) const {
    return ((head.z >> half_shift) & whole_mask) | ((head.w >> 4) & low_mask);
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
    const uint32_t scales = lane.scales(head);
#pragma unroll
    for (unsigned s = 0; s < step_sets; ++s) scale[s] = BiasedQuants<0>::to_float(scales, s);
    const uint32_t minimums = lane.minimums(head);
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      minimum[i] = __uint_as_float(__byte_perm(minimums, 0x4B000000u, lane.minimum_bytes + i)) - 8388608.0f;
    }
  }
};

// The factors of a row for halves: weight = outer * scale * q - outer_minimum * minimum, where the integers scale and
// minimum of a sub-block are pairs of equal halves. Quants are 2^-24 of theirs, those of odd sets 2^(odd_bits - 24).
template <unsigned odd_bits>
struct KHalfFactors {
  float outer;
  float outer_minimum;
  uint32_t scales;
  uint32_t minimums;  // of the lane's two groups, 2^-14 of them

  template <class Fragment>
  ZINC_DEVICE KHalfFactors(const Fragment& row, const KTileLane& lane) {
    outer = half_to_float(static_cast<uint16_t>(row.head.x));
    outer_minimum = half_to_float(static_cast<uint16_t>(row.head.x >> 16));
    scales = lane.scales(row.head);
    // Bytes 0 and 2 of the selector name minimums, the others what is the byte above here.
    minimums = difference<-14>(__byte_perm(lane.minimums(row.head), base<-14>, lane.minimum_pair));
  }

  // 2^5 times the scale, less by what the quants are more.
  ZINC_DEVICE uint32_t scale(unsigned set) const {
    const unsigned selector = 0x4040u + 0x0101u * set;
    constexpr int odd = 5 - static_cast<int>(odd_bits);
    return set % 2 == 0 ? difference<5>(__byte_perm(scales, base<5>, selector))
                        : difference<odd>(__byte_perm(scales, base<odd>, selector));
  }

 private:
  // The upper byte of the power of two of which the last bit of a half is worth 2^unit, four times.
  template <int unit>
  static constexpr uint32_t base = static_cast<uint32_t>(unit + 10 + 15) * 4 * 0x01010101u;
  // Halves without it.
  template <int unit>
  static ZINC_DEVICE uint32_t difference(uint32_t pair) {
    constexpr uint32_t one = 0x3C003C00u;
    constexpr uint32_t minus = 0x80008000u | (base<unit> & 0xFF00FF00u);
    return exact_halves(pair, one, minus);
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
  static constexpr bool halves = false;
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

// The same for halves of vectors. The quants of Fragment are the last bits of halves, those of odd sets 2^odd_bits
// times as large: pair(set, i, odd) are columns 4 i + odd and the next but one of the lane's 16.
template <class Format_, unsigned odd_bits>
struct KHalves {
  using Format = Format_;
  static constexpr bool halves = true;
  static constexpr unsigned step_bytes = Format::block_bytes;
  static constexpr unsigned alignment = 16;
  static constexpr unsigned pitch = 0;

  using Lane = KTileLane;
  using Factors = KHalfFactors<odd_bits>;
};

}  // namespace zinc
