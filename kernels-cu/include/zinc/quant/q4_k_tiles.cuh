// q4_K as dmmv_tiles.cuh multiplies it.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/quant/q4_k.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// Lanes 0 and 1 of a quad hold an even 32-byte chunk of quants, 2 and 3 the next; a chunk's low nibbles are one
// sub-block, its high nibbles the next one. High nibbles stay where they are, as bytes of 16 q.
struct Q4KTiles {
  using Format = Q4K;
  using Row = uint8_t;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = true;
  static constexpr unsigned step_bytes = Q4K::block_bytes;
  static constexpr unsigned alignment = 16;

  static ZINC_DEVICE unsigned position(unsigned column) {
    const unsigned chunk = column / 64;
    const unsigned high = column / 32 % 2;
    return (chunk / 2 * 2 + high) * set_columns + chunk % 2 * 32 + column % 32;
  }
  static ZINC_DEVICE float set_scale(unsigned set) { return set % 2 == 0 ? 1.0f : 0.0625f; }

  // What a lane holds of a row.
  struct Fragment {
    uint4 head;
    uint4 quants[2];

    ZINC_DEVICE void load(const uint8_t* block, unsigned lane) {
      constexpr unsigned quants_at = 16;
      head = __ldcs(reinterpret_cast<const uint4*>(block));
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        quants[i] = __ldcs(reinterpret_cast<const uint4*>(block + quants_at + 64 * i + 16 * lane));
      }
    }

    ZINC_DEVICE uint32_t word(unsigned set, unsigned i) const {
      const uint4& q = quants[set / 2];
      const uint32_t both = i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
      return both & (set % 2 == 0 ? 0x0F0F0F0Fu : 0xF0F0F0F0u);
    }
  };

  // What differs between the lanes of a quad: how they decode the head. Held, since every step needs it.
  struct Lane {
    uint32_t low_bytes;
    uint32_t top_bytes;
    uint32_t top_shift;
    uint32_t whole_mask;
    uint32_t low_mask;
    uint32_t minimum_bytes[2];

    explicit ZINC_DEVICE Lane(unsigned lane) {
      const bool second = lane >= 2;
      low_bytes = held(second ? 0x7632u : 0x5410u);
      top_bytes = held(second ? 0x3232u : 0x1010u);
      top_shift = held(second ? 2 : 0);
      whole_mask = held(second ? 0x30303030u : 0x3F3F3F3Fu);
      low_mask = held(second ? 0x0F0F0F0Fu : 0u);
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) minimum_bytes[i] = held(0x7440u + lane % 2 * 2 + i);
    }
  };

  // The factors of a row: weight = outer * scale[set] * q - outer_minimum * minimum, the minimums being those of the
  // groups 2 * lane and 2 * lane + 1.
  struct Factors {
    float outer;
    float outer_minimum;
    float scale[step_sets];
    float minimum[2];

    ZINC_DEVICE Factors(const Fragment& f, const Lane& lane) {
      outer = half_to_float(static_cast<uint16_t>(f.head.x));
      outer_minimum = half_to_float(static_cast<uint16_t>(f.head.x >> 16));
      // head.y: scales 0..3, head.z: minimums 0..3, both with two bits of 4..7 on top; head.w: four bits each of
      // scales and minimums 4..7. A lane's scales are 2 h, 2 h + 1, 4 + 2 h, 5 + 2 h of its half h, its minimums come
      // from the first four or the last four.
      const uint32_t low = __byte_perm(f.head.y, f.head.w, lane.low_bytes);
      const uint32_t top = __byte_perm(f.head.y, f.head.y, lane.top_bytes) >> 2;
      const uint32_t scales = (low & 0x0F0F3F3Fu) | (top & 0x30300000u);
#pragma unroll
      for (unsigned s = 0; s < step_sets; ++s) scale[s] = BiasedQuants<0>::to_float(scales, s);
      const uint32_t minimums = ((f.head.z >> lane.top_shift) & lane.whole_mask) | ((f.head.w >> 4) & lane.low_mask);
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        minimum[i] = __uint_as_float(__byte_perm(minimums, 0x4B000000u, lane.minimum_bytes[i])) - 8388608.0f;
      }
    }
  };
};

}  // namespace zinc
