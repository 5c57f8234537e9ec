// Raw rows of quantized matrices in shared memory, as matrix-matrix products stage them: 256 columns at a time, by
// copies that run beside the products.
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/dmmv_rows.cuh"
#include "zinc/half.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

// Makes the compiler forget what it knows of `value`: so that it computes addresses anew in every step, rather than
// keep all of them in registers.
ZINC_DEVICE void forget(uint32_t& value) {
#ifndef ZINC_EMULATOR
  asm volatile("" : "+r"(value));
#endif
}

// Makes the compiler keep `value`, rather than compute it anew from the thread's index, which is slow to read.
ZINC_DEVICE void keep(uint32_t& value) { forget(value); }

// The thread's index, read anew rather than kept in a register from before.
ZINC_DEVICE uint32_t thread_anew() {
#ifdef ZINC_EMULATOR
  return threadIdx.x;
#else
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#endif
}

constexpr unsigned step_columns = 64;
constexpr unsigned chunk_columns = 256;
constexpr unsigned token_block = 32;  // columns of a token's scale
constexpr unsigned step_blocks = step_columns / token_block;
constexpr unsigned chunk_blocks = chunk_columns / token_block;
constexpr unsigned chunk_steps = chunk_columns / step_columns;

// Where the rows of a tile come from; rows past the end are replaced by the last one.
template <class Format, class Shape>
struct RowSource {
  const uint8_t* const (&matrix)[Shape::matrices];
  uint32_t m;
  uint32_t k;
  uint32_t first;

  ZINC_DEVICE const uint8_t* base(unsigned s) const {
    if constexpr (Shape::matrices == 2) return Shape::matrix(s) == 0 ? matrix[0] : matrix[1];
    return matrix[0];
  }
  ZINC_DEVICE uint32_t row(unsigned s) const { return min(first + Shape::matrix_row(s), m - 1); }
};

// The bytes of a chunk of rows. `level` says that they are whole 16 bytes; otherwise the 16 bytes around the ends are
// there too, and a row starts shift() bytes on. `extra` bytes keep rows that are read together out of each other's
// banks.
template <bool level, class Format, class Shape, unsigned extra = 0>
struct RawRows {
  static constexpr bool is_level = level;
  static constexpr unsigned bytes = chunk_columns / Format::block_columns * Format::block_bytes;
  static constexpr unsigned pieces = level ? bytes / 16 : (bytes + 14 + 15) / 16;
  static constexpr unsigned pitch = pieces * 16 + extra;
  static_assert(!level || bytes % 16 == 0);
  using Source = RowSource<Format, Shape>;

  alignas(16) uint8_t of[Shape::rows][pitch];

  static ZINC_DEVICE unsigned shift(const Source& from, unsigned s, uint32_t chunk) {
    if constexpr (level) return 0;
    const uint32_t base = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from.base(s)));
    return (base + from.row(s) * static_cast<uint32_t>(row_bytes<Format>(from.k)) + chunk * bytes) % 16;
  }

  ZINC_DEVICE void copy(const Source& from, uint32_t chunk) {
    uint32_t thread = threadIdx.x;
    forget(thread);
    copy<Shape::rows>(from, chunk, thread);
  }
  // By one of Shape::threads threads, `unrolled` of whose copies are in one piece of code.
  template <unsigned unrolled>
  ZINC_DEVICE void copy(const Source& from, uint32_t chunk, uint32_t thread) {
    // Neighbouring threads have neighbouring pieces of a row; rows a power of two apart have addresses that differ by
    // what the compiler knows.
    constexpr unsigned lanes = pieces > 16 ? 32 : 16;
    constexpr unsigned at_once = Shape::threads / lanes;
    static_assert(pieces <= lanes);
    const unsigned piece = thread % lanes;
    if (piece >= pieces) return;
    const uint32_t start = chunk * bytes + piece * 16;
#pragma unroll unrolled
    for (unsigned i = 0; i < (Shape::rows + at_once - 1) / at_once; ++i) {
      const unsigned s = i * at_once + thread / lanes;
      if (Shape::rows % at_once != 0 && s >= Shape::rows) break;
      const uint8_t* p = from.base(s) + (from.row(s) * row_bytes<Format>(from.k) + start);
      uint8_t* const to = &of[s][piece * 16];
      if constexpr (level) {
        async_copy<16>(shared_place(to), p);
      } else {
        p -= shift(from, s, chunk);
        const uint8_t* const end = from.base(s) + from.m * row_bytes<Format>(from.k);
        if (end - p >= 16) {
          async_copy<16>(shared_place(to), p);
        } else {
          for (unsigned b = 0; b < 16 && p + b < end; b += 2) {
            *reinterpret_cast<uint16_t*>(to + b) = load_u16(p + b);
          }
        }
      }
    }
  }

  // The same where the matrix row of Shape::matrix_row(i + j) is that of i and that of j on, for numbers without a
  // common bit.
  ZINC_DEVICE void copy_in_turn(const Source& from, uint32_t chunk, uint32_t thread) {
    const uint64_t after = from.m - min(uint64_t{from.m}, uint64_t{from.first} + Shape::matrix_rows);
    if (level || after * row_bytes<Format>(from.k) >= pieces * 16) {
      copy_in_turn<true>(from, chunk, thread);
    } else {
      copy_in_turn<false>(from, chunk, thread);
    }
  }

  // The same for rows that lie one after another, without a look at the matrix's end: behind the tile's rows the matrix
  // has at least the pieces * 16 bytes that the copies of the last one may reach.
  ZINC_DEVICE void copy_inner(const Source& from, uint32_t chunk, uint32_t thread) {
    constexpr unsigned at_once = Shape::threads / pieces;
    const unsigned first = thread / pieces;
    if (first >= at_once) return;
    const uint64_t step = at_once * row_bytes<Format>(from.k);
    const uint8_t* p = from.base(0) + (uint64_t{from.first + first} * row_bytes<Format>(from.k) + chunk * bytes);
    SharedPlace to = shared_place(&of[first][thread % pieces * 16]);
#pragma unroll 4
    for (unsigned s = first; s < Shape::rows; s += at_once) {
      const unsigned past = level ? 0 : static_cast<unsigned>(reinterpret_cast<uint64_t>(p)) % 16;
      async_copy<16>(to, p - past + thread % pieces * 16);
      p += step;
      to += at_once * pitch;
    }
  }

 private:
  // Copies of inner rows do not look at the matrix's end.
  template <bool inner>
  ZINC_DEVICE void copy_in_turn(const Source& from, uint32_t chunk, uint32_t thread) {
    constexpr unsigned first_lanes = 16;
    constexpr unsigned first = pieces < first_lanes ? pieces : first_lanes;
    copy_pieces<inner, first_lanes>(from, chunk, thread / first_lanes, thread % first_lanes,
                                    thread % first_lanes < first);
    constexpr unsigned rest = pieces - first;
    constexpr unsigned lanes = rest <= 1 ? 1 : 2;
    static_assert(rest <= 2);
    if constexpr (rest > 0) copy_pieces<inner, lanes>(from, chunk, thread / lanes, first + thread % lanes, true);
  }
  // Piece `piece` of every row of the thread's, of which `lanes` threads copy a piece each.
  template <bool inner, unsigned lanes>
  ZINC_DEVICE void copy_pieces(const Source& from, uint32_t chunk, unsigned row, unsigned piece, bool present) {
    constexpr unsigned at_once = Shape::threads / lanes;
    constexpr unsigned period = at_once < 32 ? 32 : at_once;  // after it, rows of the matrix are as many on
    const uint64_t line = row_bytes<Format>(from.k);
    const uint64_t start = uint64_t{chunk} * bytes + piece * 16;
    const uint32_t mine = from.first + Shape::matrix_row(row);
    const SharedPlace to = shared_place(&of[row][piece * 16]);
    if (!present) return;
#pragma unroll 1
    for (unsigned s = 0; s < Shape::rows; s += period) {
#pragma unroll
      for (unsigned i = 0; i < period; i += at_once) {
        if (Shape::rows < period && s + i + row >= Shape::rows) break;
        const uint32_t r = min(mine + Shape::matrix_row(s) + Shape::matrix_row(i), from.m - 1);
        const uint8_t* p = from.base(i + row) + start + r * line;
        if constexpr (!level) p -= reinterpret_cast<uint64_t>(p) % 16;
        if (inner || from.base(i + row) + from.m * line - p >= 16) {
          async_copy<16>(to + (s + i) * pitch, p);
        } else {
          const uint8_t* const end = from.base(i + row) + from.m * line;
          for (unsigned b = 0; b < 16 && p + b < end; b += 2) {
            *reinterpret_cast<uint16_t*>(&of[s + i + row][piece * 16 + b]) = load_u16(p + b);
          }
        }
      }
    }
  }
};

// `count` words from an even address of shared memory, of which the words around are there too.
template <unsigned count>
ZINC_DEVICE void shared_words(const uint8_t* p, unsigned offset, uint32_t (&words)[count]) {
  const uint32_t* const from = reinterpret_cast<const uint32_t*>(p + offset / 4 * 4);
  const unsigned selector = offset % 4 == 0 ? 0x3210u : 0x5432u;
  uint32_t lower = from[0];
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    const uint32_t upper = from[i + 1];
    words[i] = __byte_perm(lower, upper, selector);
    lower = upper;
  }
}

// The 6-bit scales and minimums of a block of q4_K or q5_K, four in a word.
constexpr float k_factor_unit = 0x1p-15f;

// What the quants of a block are multiplied by, as k_quants gives them, in both halves: 2^9 times the block's of eight
// scales where they are the lower bits of their bytes, and 2^5 times where they are the upper ones.
ZINC_DEVICE uint32_t k_factor(const uint32_t (&scales)[2], unsigned block) {
  constexpr uint32_t half_32 = 0x50005000u;
  constexpr uint32_t half_16 = 0x4C004C00u;
  constexpr uint32_t half_minus_32768 = 0xF800F800u;
  const uint32_t number = __byte_perm(block < 4 ? scales[0] : scales[1], 0x64646464u, 0x4040u | (block % 4) * 0x0101u);
  const uint32_t factor = exact_halves(number, half_32, half_minus_32768);  // (1024 + scale) * 32 - 32768
  return block % 2 == 0 ? exact_halves(factor, half_16, 0) : factor;
}

// Bytes 0 and 2, or 1 and 3, of a word of quants of block 2 pair + q of q4_K or, with the `fifth` bit, q5_K, whose word
// of these is `high`: whole numbers in halves, 16 times them where q is 1.
template <bool fifth>
ZINC_DEVICE uint32_t k_quants(uint32_t word, uint32_t high, unsigned pair, unsigned q, unsigned odd) {
  // The lower or the upper four bits of every other byte, and above them the block's bit of the fifth ones.
  const uint32_t mask = q == 0 ? 0x000F000Fu : 0x00F000F0u;
  const uint32_t high_mask = q == 0 ? 0x00100010u : 0x01000100u;
  const unsigned high_shift = 4 + 2 * pair + q - 4 * q;
  uint32_t quants = (word >> (8 * odd)) & mask;
  if constexpr (fifth) quants |= ((odd == 0 ? high << 8 : high) >> high_shift) & high_mask;
  return quants;
}

struct KNumbers {
  uint32_t scales[2];
  uint32_t minimums[2];

  explicit ZINC_DEVICE KNumbers(const uint32_t (&head)[4])
      : scales{head[1] & 0x3F3F3F3Fu, (head[3] & 0x0F0F0F0Fu) | ((head[1] >> 2) & 0x30303030u)},
        minimums{head[2] & 0x3F3F3F3Fu, ((head[3] >> 4) & 0x0F0F0F0Fu) | ((head[2] >> 2) & 0x30303030u)} {}

  ZINC_DEVICE uint32_t factor(unsigned block) const { return k_factor(scales, block); }
};

// Two words of shared memory, 8-byte aligned where `wide`.
template <bool wide>
ZINC_DEVICE uint2 two_words(const uint8_t* p) {
  if constexpr (wide) return *reinterpret_cast<const uint2*>(p);
  return make_uint2(reinterpret_cast<const uint32_t*>(p)[0], reinterpret_cast<const uint32_t*>(p)[1]);
}

// A lane's fragments of 32 columns of two rows, `pitch` bytes apart, of q4_K or, with the `fifth` bit, q5_K: quants
// times scales, as multiples of k_factor_unit in binary16. Columns are 8 part .. 8 part + 7 of block 2 pair + q, in the
// order 0 2 1 3, 4 6 5 7; `at` is 8 part bytes into the first row's block.
template <bool wide, bool fifth>
ZINC_DEVICE void k_fragment(uint32_t (&a)[2][4], const uint8_t* at, unsigned pitch, unsigned quants_at, unsigned pair,
                            unsigned q, const uint2& factors) {
  constexpr unsigned high_at = 16;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    const uint2 low = two_words<wide>(at + h * pitch + quants_at + pair * 32);
    uint2 high = {};
    if constexpr (fifth) high = two_words<wide>(at + h * pitch + high_at);
#pragma unroll
    for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
      for (unsigned odd = 0; odd < 2; ++odd) {
        const uint32_t quants = k_quants<fifth>(c == 0 ? low.x : low.y, c == 0 ? high.x : high.y, pair, q, odd);
        // The bits of a whole number are those of a subnormal one, 2^-24 times as much.
        a[c][2 * odd + h] = exact_halves(quants, h == 0 ? factors.x : factors.y, 0);
      }
    }
  }
}

}  // namespace zinc
