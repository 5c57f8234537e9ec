// Weights in binary16 as the tensor cores take them: a lane decodes them from the raw rows of a chunk of 256 columns in
// shared memory, with a table of the rows' factors that is made once for all lanes.
//
// HalfWeights of a format is a struct with
//   Table<rows>                            the numbers of a chunk; empty where lanes read them from the rows
//   has_table
//   make(table, row, bytes)                fills in a row, whose chunk lies at `bytes`
//   fragment(a, table, rows, starts, row, block, present)
//                                          a lane's fragments of 32 columns, a block of the chunk's eight, of shared
//                                          rows `row` and `row` + 1, whose chunks begin at bytes starts[0] and [1]:
//                                          columns 8 part .. 8 part + 7 in the order 0 2 1 3, 4 6 5 7, and zero unless
//                                          they are `present`
#pragma once

#include "zinc/mul_mm_half.cuh"
#include "zinc/quant/q4_k.cuh"
#include "zinc/quant/q5_k.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/q8_0.cuh"

namespace zinc {

// a * b + c of both halves, rounded to nearest once; the emulator rounds the sum to f32 before.
ZINC_DEVICE uint32_t rounded_halves(uint32_t a, uint32_t b, uint32_t c) { return exact_halves(a, b, c); }

// Bytes 0 and 2 of a word, or 1 and 3, below the bits of 1024.
ZINC_DEVICE uint32_t above_1024(uint32_t word, unsigned odd) {
  return __byte_perm(word, 0x64646464u, odd == 0 ? 0x4240u : 0x4341u);
}

// A number of two bytes in both halves of a word.
ZINC_DEVICE uint32_t twice(uint32_t half) { return __byte_perm(half, 0, 0x1010u); }

// q4_K and q5_K: a quant times its 6-bit scale is a whole number below 2048 and exact; the block's factor and the
// product of the minimums make a weight of it in one step.
template <class Format, bool fifth>
struct KHalfWeights {
  static constexpr unsigned quants_at = fifth ? 48 : 16;
  static constexpr bool has_table = true;

  // Everything in both halves of a word. Scales are divided by 16 where the quants are the upper bits of their bytes.
  template <unsigned rows>
  struct Table {
    alignas(16) uint32_t scale[chunk_blocks][rows];
    alignas(16) uint32_t minimum[chunk_blocks][rows];  // less than zero
    alignas(16) uint32_t factor[rows];
  };

  template <bool wide, unsigned rows>
  static ZINC_DEVICE void make(Table<rows>& table, unsigned row, const uint8_t* bytes) {
    constexpr uint32_t half_sixteenth = 0x2C002C00u;
    constexpr uint32_t half_minus_64 = 0xD400D400u;
    const uint2 low = two_words<wide>(bytes);
    const uint2 high = two_words<wide>(bytes + 8);
    const KNumbers numbers({low.x, low.y, high.x, high.y});
    table.factor[row] = twice(low.x);
    const uint32_t minimum_factor = __byte_perm(low.x, 0, 0x3232u) ^ 0x80008000u;
#pragma unroll
    for (unsigned block = 0; block < chunk_blocks; ++block) {
      const uint32_t selector = 0x4040u | (block % 4) * 0x0101u;
      const uint32_t scale = __byte_perm(numbers.scales[block / 4], 0x64646464u, selector);
      const uint32_t minimum = __byte_perm(numbers.minimums[block / 4], 0x64646464u, selector);
      table.scale[block][row] = block % 2 == 0 ? exact_halves(scale, half_one, half_minus_1024)
                                               : exact_halves(scale, half_sixteenth, half_minus_64);
      table.minimum[block][row] = rounded_halves(exact_halves(minimum, half_one, half_minus_1024), minimum_factor, 0);
    }
  }

  template <bool level, unsigned rows, class Rows>
  static ZINC_DEVICE void fragment(uint32_t (&a)[2][4], const Table<rows>& table, const Rows& raw,
                                   const uint32_t (&starts)[2], unsigned row, unsigned block, bool) {
    constexpr unsigned high_at = 16;
    const uint8_t* const at = raw.of[row] + starts[0] + lane_id() % 4 * 8;
    const uint2 scales = *reinterpret_cast<const uint2*>(&table.scale[block][row]);
    const uint2 minimums = *reinterpret_cast<const uint2*>(&table.minimum[block][row]);
    const uint2 factors = *reinterpret_cast<const uint2*>(&table.factor[row]);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const uint32_t scale = h == 0 ? scales.x : scales.y;
      const uint32_t minimum = h == 0 ? minimums.x : minimums.y;
      const uint32_t factor = h == 0 ? factors.x : factors.y;
      const uint32_t offset = exact_halves(scale, half_minus_1024, 0);
      const uint2 low = two_words<level>(at + h * Rows::pitch + quants_at + block / 2 * 32);
      uint2 high = {};
      if constexpr (fifth) high = two_words<level>(at + h * Rows::pitch + high_at);
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          // The lower or the upper four bits of a byte, and above them the block's bit of the fifth ones.
          const unsigned q = block % 2;
          uint32_t quants = above_1024(c == 0 ? low.x : low.y, odd) & (q == 0 ? 0xFF0FFF0Fu : 0xFFF0FFF0u);
          if constexpr (fifth) {
            const uint32_t bits = c == 0 ? high.x : high.y;
            quants |= ((odd == 0 ? bits << 8 : bits) >> (4 + block - 4 * q)) & (q == 0 ? 0x00100010u : 0x01000100u);
          }
          a[c][2 * odd + h] = rounded_halves(exact_halves(quants, scale, offset), factor, minimum);
        }
      }
    }
  }
};

// q6_K: quants times their signed scale of 16 columns are rounded where they are above 2048, and again with the factor.
struct Q6KHalfWeights {
  static constexpr bool has_table = true;
  static constexpr unsigned high_at = 128;
  static constexpr unsigned scales_at = 192;
  static constexpr unsigned factor_at = 208;
  static constexpr unsigned scales = 16;

  template <unsigned rows>
  struct Table {
    alignas(16) uint32_t scale[scales][rows];
    alignas(16) uint32_t factor[rows];
  };

  template <bool, unsigned rows>
  static ZINC_DEVICE void make(Table<rows>& table, unsigned row, const uint8_t* bytes) {
    table.factor[row] = twice(*reinterpret_cast<const uint16_t*>(bytes + factor_at));
#pragma unroll
    for (unsigned i = 0; i < scales; i += 2) {
      const uint32_t two = *reinterpret_cast<const uint16_t*>(bytes + scales_at + i) ^ 0x8080u;
#pragma unroll
      for (unsigned e = 0; e < 2; ++e) {
        const uint32_t biased = __byte_perm(two, 0x64646464u, 0x4040u | e * 0x0101u);
        table.scale[i + e][row] = exact_halves(biased, half_one, half_minus_1024 + 128 * both_halves);
      }
    }
  }

  template <bool, unsigned rows, class Rows>
  static ZINC_DEVICE void fragment(uint32_t (&a)[2][4], const Table<rows>& table, const Rows& raw,
                                   const uint32_t (&starts)[2], unsigned row, unsigned block, bool) {
    constexpr uint32_t half_64 = 0x54005400u;        // the bits above the lowest four make 64 + number
    constexpr uint32_t half_minus_96 = 0xD600D600u;  // -64 - 32
    const unsigned quarter = block % 4;
    const unsigned column = lane_id() % 4 * 8;
    const uint2 factors = *reinterpret_cast<const uint2*>(&table.factor[row]);
    const uint2 of_columns = *reinterpret_cast<const uint2*>(&table.scale[2 * block + column / 16][row]);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const uint32_t scale = h == 0 ? of_columns.x : of_columns.y;
      const uint32_t factor = h == 0 ? factors.x : factors.y;
      const uint32_t offset = exact_halves(scale, half_minus_96, 0);
      const unsigned at = starts[h] + column;
      uint32_t low[2];
      uint32_t high[2];
      shared_words(raw.of[row + h], at + block / 4 * 64 + quarter % 2 * 32, low);
      shared_words(raw.of[row + h], at + high_at + block / 4 * 32, high);
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          // To bits 4 to 7, and 8 and 9.
          const int low_shift = 4 - 8 * static_cast<int>(odd) - (quarter < 2 ? 0 : 4);
          const int high_shift = 8 - 8 * static_cast<int>(odd) - 2 * static_cast<int>(quarter);
          const uint32_t lower = low_shift < 0 ? low[c] >> -low_shift : low[c] << low_shift;
          const uint32_t upper = high_shift < 0 ? high[c] >> -high_shift : high[c] << high_shift;
          const uint32_t quants = (lower & 0x00F000F0u) | (upper & 0x03000300u) | half_64;
          a[c][2 * odd + h] = rounded_halves(rounded_halves(quants, scale, offset), factor, 0);
        }
      }
    }
  }
};

// q8_0: quants times the factor of their 32 columns.
struct Q8_0HalfWeights {
  static constexpr bool has_table = false;
  static constexpr unsigned quants_at = 2;

  template <unsigned rows>
  struct Table {};

  template <bool, unsigned rows, class Rows>
  static ZINC_DEVICE void fragment(uint32_t (&a)[2][4], const Table<rows>&, const Rows& raw,
                                   const uint32_t (&starts)[2], unsigned row, unsigned block, bool present) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned at = block * Q8_0::block_bytes + starts[h];
      const uint32_t factor = present ? twice(*reinterpret_cast<const uint16_t*>(raw.of[row + h] + at)) : 0;
      uint32_t words[2];
      shared_words(raw.of[row + h], at + quants_at + lane_id() % 4 * 8, words);
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          const uint32_t biased = above_1024(words[c] ^ 0x80808080u, odd);
          const uint32_t quants = exact_halves(biased, half_one, half_minus_1024 + 128 * both_halves);
          a[c][2 * odd + h] = rounded_halves(quants, factor, 0);
        }
      }
    }
  }
};

template <class Format>
struct HalfWeightsOf;
template <>
struct HalfWeightsOf<Q4K> {
  using type = KHalfWeights<Q4K, false>;
};
template <>
struct HalfWeightsOf<Q5K> {
  using type = KHalfWeights<Q5K, true>;
};
template <>
struct HalfWeightsOf<Q6K> {
  using type = Q6KHalfWeights;
};
template <>
struct HalfWeightsOf<Q8_0> {
  using type = Q8_0HalfWeights;
};
template <class Format>
using HalfWeights = typename HalfWeightsOf<Format>::type;

}  // namespace zinc
