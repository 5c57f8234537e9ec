// Tiles of matrix-matrix products of quantized matrices with int8 tokens by __dp4a: exact integer sums per scale, f32
// between them.
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/mul_mm_int8_exact.cuh"
#include "zinc/mul_mm_tiles.cuh"

namespace zinc {

// A block computes `rows` rows of each matrix for `tokens` tokens, `step` columns at a time; a thread four neighbouring
// rows for eight neighbouring tokens.
template <unsigned rows_, unsigned tokens_, unsigned threads_, unsigned step_>
struct Dp4aShape {
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned step = step_;
  static constexpr unsigned thread_rows = 4;
  static constexpr unsigned thread_tokens = 8;
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned blocks = step / block_columns;
  static constexpr unsigned lanes_x = rows / thread_rows;
  static_assert(rows % 32 == 0 && tokens % 32 == 0 && step % block_columns == 0);
  static_assert(lanes_x * (tokens / thread_tokens) == threads, "every output has one thread");

  // The first of the thread's rows, and its tokens.
  static ZINC_DEVICE unsigned row() { return threadIdx.x % lanes_x * thread_rows; }
  static ZINC_DEVICE unsigned token(unsigned i) { return threadIdx.x / lanes_x * thread_tokens + i; }
};

// A step of rows and tokens in shared memory, in words of four columns.
template <class Format_, class Shape_, unsigned matrices>
struct Dp4aTile {
  using Format = Format_;
  using Shape = Shape_;
  static constexpr unsigned block_words = Shape::block_columns / 4;
  static constexpr unsigned subs = Shape::block_columns / Format::scale_columns;  // scales of a block
  // 64 bytes are added per eight tokens, so that the tokens of a lane's neighbours lie in other banks.
  static constexpr unsigned token_words = 8 * block_words + 16;  // of eight tokens
  static constexpr bool has_units = Format::block_columns == chunk_columns;

  alignas(16) uint32_t a[matrices][Shape::blocks][block_words][Shape::rows];
  alignas(16) uint32_t b[Shape::blocks][Shape::tokens / 8][token_words];
  alignas(16) float a_scale[matrices][Shape::blocks * subs][Shape::rows];
  alignas(16) float a_minimum[matrices][Format::has_minimum ? Shape::blocks : 1][Format::has_minimum ? Shape::rows : 4];
  alignas(16) float a_unit[matrices][has_units ? Shape::rows : 4];
  alignas(16) float a_ratio[matrices][has_units ? Shape::rows : 4];
  alignas(16) float b_scale[Shape::blocks][Shape::tokens];
  alignas(16) float b_sum[Format::has_minimum ? Shape::blocks : 1][Format::has_minimum ? Shape::tokens : 4];

  // Word `word` of a token in a block.
  ZINC_DEVICE uint32_t* token_word(unsigned block, unsigned token, unsigned word) {
    return &b[block][token / 8][token % 8 * block_words + word];
  }
};

// A thread's part of the rows of a step, on its way through the registers: quants become signed bytes, and scales
// floats. Rows past the end are replaced by the last one, columns past the end by zeros.
template <class Format, class Shape, unsigned matrices>
struct Dp4aRows {
  using Tile = Dp4aTile<Format, Shape, matrices>;
  static constexpr unsigned step_units = Shape::step / unit_columns;
  static constexpr unsigned all = matrices * Shape::rows * step_units;
  static constexpr unsigned count = all / Shape::threads;
  static constexpr unsigned block_units = Format::block_columns / unit_columns;
  static constexpr unsigned run_bit = Format::run_distance / run_columns;
  static_assert(count * Shape::threads == all, "every thread stages equally many units");
  static_assert(Shape::threads % step_units == 0);
  static_assert(Shape::step % (2 * Format::run_distance) == 0, "both runs of a unit lie in the step");

  typename Format::Unit unit[count];
  uint32_t block;  // the step's first block of 32 columns
  float last_unit[Tile::has_units ? count : 1];

  // Neighbouring threads have neighbouring units of a row.
  static ZINC_DEVICE unsigned place() { return threadIdx.x % step_units; }
  static ZINC_DEVICE unsigned row(unsigned i) { return (i * Shape::threads + threadIdx.x) / step_units % Shape::rows; }
  static ZINC_DEVICE unsigned matrix(unsigned i) {
    return matrices == 1 ? 0 : (i * Shape::threads + threadIdx.x) / (step_units * Shape::rows);
  }

  ZINC_DEVICE void load(const uint8_t* const (&from)[matrices], uint32_t m, uint32_t k, uint32_t first_row,
                        uint32_t step) {
    block = step * step_units;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      uint32_t at = step * step_units + place();
      if constexpr (Format::block_columns % Shape::step != 0) at = min(at, k / unit_columns - 1);
      const uint8_t* base = from[0];
      if constexpr (matrices == 2) base = matrix(i) == 0 ? from[0] : from[1];
      const uint8_t* const line = base + uint64_t{min(first_row + row(i), m - 1)} * row_bytes<Format>(k);
      unit[i] = Format::template load<false>(line + uint64_t{at / block_units} * Format::block_bytes, at % block_units);
    }
  }

  ZINC_DEVICE void store(Tile& tile, uint32_t k) {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const unsigned group = place() / run_bit * 2 * run_bit + place() % run_bit;  // of 16 columns
#pragma unroll
      for (unsigned run = 0; run < 2; ++run) {
        const unsigned column = (group + run * run_bit) * run_columns;
#pragma unroll
        for (unsigned w = 0; w < run_words; ++w) {
          tile.a[matrix(i)][column / Shape::block_columns][column / 4 % 8 + w][row(i)] =
              Format::Quants::to_int8(unit[i].word(run, w));
        }
      }
      store_scales(tile, k, i, group);
    }
  }

 private:
  static ZINC_DEVICE auto block_unit(const typename Format::Unit& of) {
    if constexpr (Format::has_minimum) {
      return KUnit(of.head);
    } else {
      return Q6Unit(of.d);
    }
  }
  // Where 32 columns share a scale, one of their two runs stores it.
  ZINC_DEVICE void store_scales(Tile& tile, uint32_t k, unsigned i, unsigned group) {
    if constexpr (Tile::has_units) {
      static_assert(Format::block_columns % Shape::step == 0);
      const auto own = block_unit(unit[i]);
      const uint32_t in_block = block % (Format::block_columns / Shape::block_columns);
      if (place() == 0) {
        tile.a_unit[matrix(i)][row(i)] = own.unit;
        tile.a_ratio[matrix(i)][row(i)] = block == 0 || in_block != 0 ? 1.0f : own.ratio(last_unit[i]);
        last_unit[i] = own.unit;
      }
#pragma unroll
      for (unsigned run = 0; run < 2; ++run) {
        const unsigned column = (group + run * run_bit) * run_columns;
        if (column % Format::scale_columns != 0) continue;
        const unsigned at = column / Format::scale_columns;
        if constexpr (Format::has_minimum) {
          tile.a_scale[matrix(i)][at][row(i)] = own.scale(in_block + at);
          tile.a_minimum[matrix(i)][at][row(i)] = own.minimum(in_block + at);
        } else {
          tile.a_scale[matrix(i)][at][row(i)] = own.scale(unit[i].integer_scale[run]);
        }
      }
    } else {
      const auto scales = unit[i].scales();
      bool present = true;
      if constexpr (Format::block_columns % Shape::step != 0) present = block + place() < k / unit_columns;
#pragma unroll
      for (unsigned run = 0; run < 2; ++run) {
        const unsigned column = (group + run * run_bit) * run_columns;
        if (column % Format::scale_columns != 0) continue;
        tile.a_scale[matrix(i)][column / Format::scale_columns][row(i)] = present ? scales.scale[run] : 0.0f;
      }
    }
  }
};

// Copies the tokens of a step; what lies past the end becomes zero.
template <class Scales, class Format, class Shape, unsigned matrices>
ZINC_DEVICE void copy_tokens(Dp4aTile<Format, Shape, matrices>& tile, const Int8Tokens& x, uint32_t k,
                             uint32_t first_token, uint32_t step) {
  static_assert(!Format::has_minimum || Scales::floats == 2, "minimums need the sums of the quants");
  // Neighbouring threads copy the 16-byte halves of the blocks of a token.
  constexpr unsigned halves = Shape::blocks * 2;
  constexpr unsigned tokens_at_once = Shape::threads / halves;
  const unsigned half = threadIdx.x % halves;
  const uint32_t left = x.count - first_token;
  const uint32_t left_blocks = k / Shape::block_columns - step * Shape::blocks;
  const auto present = [&](unsigned token, unsigned block) {
    return token < left && (Format::block_columns % Shape::step == 0 || block < left_blocks);
  };
#pragma unroll
  for (unsigned t = 0; t < Shape::tokens; t += tokens_at_once) {
    const unsigned token = t + threadIdx.x / halves;
    const bool there = present(token, half / 2);
    const uint64_t word = (uint64_t{first_token} + token) * x.packed_pitch + (step * halves + half) * 4;
    const uint32_t* const from = x.packed + (there ? word : 0);
    const SharedPlace to = shared_place(tile.token_word(half / 2, token, half % 2 * 4));
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) async_copy_or_zero<4>(to + 4 * w, from + w, there);
  }
  constexpr unsigned scales = Shape::tokens * Shape::blocks;
  static_assert(scales % Shape::threads == 0);
#pragma unroll
  for (unsigned i = 0; i < scales; i += Shape::threads) {
    const unsigned block = threadIdx.x % Shape::blocks;
    const unsigned token = (i + threadIdx.x) / Shape::blocks;
    const bool there = present(token, block);
    const uint64_t entry = (uint64_t{first_token} + token) * x.scale_pitch + step * Shape::blocks + block;
    const float* const from = x.scales + (there ? entry * Scales::floats : 0);
    async_copy_or_zero<4>(shared_place(&tile.b_scale[block][token]), from, there);
    if constexpr (Format::has_minimum) async_copy_or_zero<4>(shared_place(&tile.b_sum[block][token]), from + 1, there);
  }
  async_commit();
}

template <class Shape, unsigned matrices>
using Dp4aSums = float[matrices][Shape::thread_tokens][Shape::thread_rows];

// The integer sums of the thread's tokens and rows over each scale of a block, counted from sum_origin.
template <class Format, class Shape, unsigned matrices, unsigned subs>
ZINC_DEVICE void block_dots(int32_t (&dots)[Shape::thread_tokens][Shape::thread_rows][subs],
                            Dp4aTile<Format, Shape, matrices>& tile, unsigned i, unsigned block) {
#pragma unroll
  for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
    for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
      for (unsigned s = 0; s < subs; ++s) dots[t][r][s] = sum_origin;
    }
  }
#pragma unroll
  for (unsigned word = 0; word < tile.block_words; word += 2) {
    uint32_t a[2][Shape::thread_rows];
#pragma unroll
    for (unsigned j = 0; j < 2; ++j) read_four(&tile.a[i][block][word + j][Shape::row()], a[j]);
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
      const uint2 b = *reinterpret_cast<const uint2*>(tile.token_word(block, Shape::token(t), word));
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) {
        int32_t& dot = dots[t][r][word * subs / tile.block_words];
        dot = __dp4a(static_cast<int32_t>(a[0][r]), static_cast<int32_t>(b.x), dot);
        dot = __dp4a(static_cast<int32_t>(a[1][r]), static_cast<int32_t>(b.y), dot);
      }
    }
  }
}

template <class Shape, unsigned matrices>
ZINC_DEVICE void scale_rows(Dp4aSums<Shape, matrices>& sum, const float (&by)[matrices][Shape::rows]) {
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) {
    float factor[4];
    read_four(&by[i][Shape::row()], factor);
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) sum[i][t][r] *= factor[r];
    }
  }
}

// Adds the products of the staged step.
template <class Format, class Shape, unsigned matrices>
ZINC_DEVICE void add_step(Dp4aSums<Shape, matrices>& sum, Dp4aTile<Format, Shape, matrices>& tile) {
  using Tile = Dp4aTile<Format, Shape, matrices>;
  if constexpr (Tile::has_units) scale_rows<Shape>(sum, tile.a_ratio);
#pragma unroll 1
  for (unsigned block = 0; block < Shape::blocks; ++block) {
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
      int32_t dots[Shape::thread_tokens][Shape::thread_rows][Tile::subs];
      block_dots<Format, Shape, matrices, Tile::subs>(dots, tile, i, block);
      float a_scale[Tile::subs][4];
#pragma unroll
      for (unsigned s = 0; s < Tile::subs; ++s) {
        read_four(&tile.a_scale[i][block * Tile::subs + s][Shape::row()], a_scale[s]);
      }
      float a_minimum[4];
      if constexpr (Format::has_minimum) read_four(&tile.a_minimum[i][block][Shape::row()], a_minimum);
#pragma unroll
      for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
        const float scale = tile.b_scale[block][Shape::token(t)];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
          float& mine = sum[i][t][r];
          if constexpr (Format::has_minimum) {
            mine = fmaf(a_minimum[r], tile.b_sum[block][Shape::token(t)], mine);
            mine = fmaf(exact_float(dots[t][r][0]) * a_scale[0][r], scale, mine);
          } else if constexpr (Tile::subs == 1) {
            mine = fmaf(scale * a_scale[0][r], exact_float(dots[t][r][0]), mine);
          } else {
            const float both =
                fmaf(a_scale[1][r], exact_float(dots[t][r][1]), a_scale[0][r] * exact_float(dots[t][r][0]));
            mine = fmaf(both, scale, mine);
          }
        }
      }
    }
  }
}

// The tile at (row, token): finish(row, token, sums[r][matrix]) for the thread's rows and each of its tokens, also past
// the end of the rows or tokens. `tile` is two of them.
template <class Scales, class Format, class Shape, unsigned matrices, class Finish>
ZINC_DEVICE void dp4a_tile(Dp4aTile<Format, Shape, matrices>* tile, const uint8_t* const (&matrix)[matrices],
                           const Int8Tokens& x, uint32_t m, uint32_t k, uint32_t row, uint32_t token, Finish finish) {
  const uint32_t steps = (k + Shape::step - 1) / Shape::step;
  Dp4aSums<Shape, matrices> sum = {};
  Dp4aRows<Format, Shape, matrices> rows;
  rows.load(matrix, m, k, row, 0);
  __syncthreads();  // the last readers of the tiles are done
  copy_tokens<Scales>(tile[0], x, k, token, 0);
  rows.store(tile[0], k);
  for (uint32_t step = 0; step < steps; ++step) {
    async_wait<0>();
    __syncthreads();  // this step is there, and the readers of the one before it are done
    const bool more = step + 1 < steps;
    if (more) copy_tokens<Scales>(tile[(step + 1) % 2], x, k, token, step + 1);
    add_step(sum, tile[step % 2]);
    if (more) {
      rows.load(matrix, m, k, row, step + 1);
      rows.store(tile[(step + 1) % 2], k);
    }
  }
  if constexpr (Dp4aTile<Format, Shape, matrices>::has_units) scale_rows<Shape>(sum, tile[(steps - 1) % 2].a_unit);
#pragma unroll
  for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
    float sums[Shape::thread_rows][matrices];
#pragma unroll
    for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) sums[r][i] = sum[i][t][r];
    }
    finish(row + Shape::row(), token + Shape::token(t), sums);
  }
}

}  // namespace zinc
