// Matrix-matrix products of quantized matrices with many f32 vectors (tokens): weights are dequantized to f32 in shared
// memory, products and sums are f32.
#pragma once

#include "zinc/dmmv_rows.cuh"
#include "zinc/gated.cuh"
#include "zinc/quant/run.cuh"

namespace zinc {

// A block computes `rows` rows for `tokens` tokens, `step` columns at a time; a thread four neighbouring rows for
// thread_tokens tokens, in two halves. Lanes are neighbours in rows, so that a warp's stores of a token are contiguous.
template <unsigned rows_, unsigned tokens_, unsigned threads_>
struct MulMmShape {
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned step = 32;
  static constexpr unsigned thread_rows = 4;
  static constexpr unsigned thread_tokens = 8;
  static constexpr unsigned lanes_x = rows / thread_rows;
  static_assert(lanes_x * (tokens / thread_tokens) == threads, "every output of the tile has one thread");
  static_assert(threads == rows * (step / run_columns), "every thread stages one run per matrix");
  static_assert(threads % warp_size == 0);

  static ZINC_DEVICE unsigned first_row() { return threadIdx.x % lanes_x * thread_rows; }
  // The tokens of a thread are 4 t .. 4 t + 3 of both halves of the tile.
  static ZINC_DEVICE unsigned token(unsigned i) { return i / 4 * (tokens / 2) + threadIdx.x / lanes_x * 4 + i % 4; }
};

template <class Shape, unsigned matrices>
struct MulMmTile {
  static_assert(Shape::rows % 4 == 0 && Shape::tokens % 4 == 0, "threads read 16 bytes at a time");
  // Column-major, padded so that neighbouring columns start in different banks.
  alignas(16) float a[matrices][Shape::step][Shape::rows + 4];
  alignas(16) float b[Shape::step][Shape::tokens + 4];
};

// Where tokens come from: token t is the floats at first + t * stride; 4-byte alignment is enough.
struct Tokens {
  const float* first;
  uint64_t stride;
  uint32_t count;

  // The columns of token t, null past the end.
  ZINC_DEVICE const float* columns(uint32_t t) const { return t < count ? first + uint64_t{t} * stride : nullptr; }
};

// Stages the columns [column, column + step) of the rows from `row` and the tokens from `token`. Rows past the end are
// replaced by the last one, tokens past the end by zeros. Source is Tokens or anything else with `columns`.
template <bool wide, class Format, class Shape, unsigned matrices, class Source>
ZINC_DEVICE void stage_step(MulMmTile<Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices],
                            uint64_t row_pitch, uint32_t m, uint32_t row, const Source& x, uint32_t token,
                            uint32_t column) {
  constexpr unsigned runs = Shape::step / run_columns;
  const unsigned r = threadIdx.x / runs;
  const unsigned g = threadIdx.x % runs;
  const uint64_t at = uint64_t{min(row + r, m - 1)} * row_pitch;
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) {
    const Run<Format> run = load_run<wide, Format>(matrix[i] + at, column / run_columns + g);
#pragma unroll
    for (unsigned c = 0; c < run_columns; ++c) tile.a[i][run_columns * g + c][r] = run.weight(c / 4, c % 4);
  }
  constexpr unsigned fours = Shape::step / 4;
  for (unsigned i = threadIdx.x; i < Shape::tokens * fours; i += Shape::threads) {
    const unsigned t = i / fours;
    const unsigned c = i % fours * 4;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (const float* const first = x.columns(token + t)) {
      const float* const p = first + column + c;
      v = is_aligned(p, sizeof(float4)) ? __ldg(reinterpret_cast<const float4*>(p))
                                        : make_float4(__ldg(p), __ldg(p + 1), __ldg(p + 2), __ldg(p + 3));
    }
    tile.b[c][t] = v.x;
    tile.b[c + 1][t] = v.y;
    tile.b[c + 2][t] = v.z;
    tile.b[c + 3][t] = v.w;
  }
}

// The products of one step, summed apart from the total: the error of a long sum then grows with the number of steps
// and not of columns.
template <class Shape>
ZINC_DEVICE void add_step(float (&sum)[Shape::thread_tokens][Shape::thread_rows],
                          const float (&a)[Shape::step][Shape::rows + 4],
                          const float (&b)[Shape::step][Shape::tokens + 4]) {
  float step[Shape::thread_tokens][Shape::thread_rows] = {};
#pragma unroll 8
  for (unsigned c = 0; c < Shape::step; ++c) {
    const float4 w = *reinterpret_cast<const float4*>(&a[c][Shape::first_row()]);
    const float4 lower = *reinterpret_cast<const float4*>(&b[c][Shape::token(0)]);
    const float4 upper = *reinterpret_cast<const float4*>(&b[c][Shape::token(4)]);
    const float x[Shape::thread_tokens] = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
      step[t][0] = fmaf(w.x, x[t], step[t][0]);
      step[t][1] = fmaf(w.y, x[t], step[t][1]);
      step[t][2] = fmaf(w.z, x[t], step[t][2]);
      step[t][3] = fmaf(w.w, x[t], step[t][3]);
    }
  }
#pragma unroll
  for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
    for (unsigned r = 0; r < Shape::thread_rows; ++r) sum[t][r] += step[t][r];
  }
}

// Visits the tiles of an m by n product: tile(row, token). Grid: x over row tiles, y over token tiles; both are walked
// with the grid's stride.
template <class Shape, class Tile>
ZINC_DEVICE void for_tiles(uint32_t m, uint32_t n, Tile tile) {
  for (uint64_t token = uint64_t{blockIdx.y} * Shape::tokens; token < n; token += uint64_t{gridDim.y} * Shape::tokens) {
    for (uint64_t row = uint64_t{blockIdx.x} * Shape::rows; row < m; row += uint64_t{gridDim.x} * Shape::rows) {
      tile(static_cast<uint32_t>(row), static_cast<uint32_t>(token));
    }
  }
}

// The sums of the tile at (row, token), by all threads of the block.
template <bool wide, class Format, class Shape, unsigned matrices, class Source>
ZINC_DEVICE void tile_product(float (&sum)[matrices][Shape::thread_tokens][Shape::thread_rows],
                              MulMmTile<Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices], uint32_t m,
                              uint32_t row, const Source& x, uint32_t token, uint32_t k) {
  for (uint32_t column = 0; column < k; column += Shape::step) {
    __syncthreads();  // the last readers of the tile are done
    stage_step<wide, Format, Shape>(tile, matrix, row_bytes<Format>(k), m, row, x, token, column);
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) add_step<Shape>(sum[i], tile.a[i], tile.b);
  }
}

template <bool wide, class Format, class Shape, unsigned matrices, class Combine>
ZINC_DEVICE void mul_mm_loading(MulMmTile<Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices],
                                const Tokens& x, uint32_t m, uint32_t k, float* d, uint64_t stride_d, Combine combine) {
  for_tiles<Shape>(m, x.count, [&](uint32_t row, uint32_t token) {
    float sum[matrices][Shape::thread_tokens][Shape::thread_rows] = {};
    tile_product<wide, Format, Shape>(sum, tile, matrix, m, row, x, token, k);
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) {
        const uint64_t at_row = uint64_t{row} + Shape::first_row() + r;
        const uint64_t at_token = uint64_t{token} + Shape::token(t);
        float sums[matrices];
#pragma unroll
        for (unsigned i = 0; i < matrices; ++i) sums[i] = sum[i][t][r];
        if (at_row < m && at_token < x.count) d[at_token * stride_d + at_row] = combine(sums);
      }
    }
  });
}

// d[t * stride_d + r] = combine(sums of row r of each matrix times token t). a_offset counts bytes, the others floats.
template <class Format, class Shape, unsigned matrices, class Push, class Combine>
ZINC_DEVICE void mul_mm_combined(const uint8_t* const (&matrix)[matrices], const float* b, float* d, const Push& p,
                                 Combine combine) {
  using Tile = MulMmTile<Shape, matrices>;
  ZINC_SHARED(Tile, tile);
  const Tokens x{b + p.b_offset, p.stride_b, p.n};
  float* const out = d + p.d_offset;
  if constexpr (Format::wide_alignment > Format::alignment) {
    bool wide = true;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], Format::wide_alignment);
    if (wide) {
      mul_mm_loading<true, Format, Shape>(tile, matrix, x, p.m, p.k, out, p.stride_d, combine);
      return;
    }
  }
  mul_mm_loading<false, Format, Shape>(tile, matrix, x, p.m, p.k, out, p.stride_d, combine);
}

template <class Format, class Shape, class Push>
ZINC_DEVICE void mul_mm(const uint8_t* a, const float* b, float* d, const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_combined<Format, Shape>(matrix, b, d, p, [](const float (&sums)[1]) { return sums[0]; });
}

// d[t * stride_d + r] = Activation(gate sum, up sum).
template <class Format, class Shape, class Activation, class Push>
ZINC_DEVICE void mul_mm_gate_up(const uint8_t* gate, const uint8_t* up, const float* b, float* d, const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_combined<Format, Shape>(matrix, b, d, p,
                                 [](const float (&sums)[2]) { return Activation::of(sums[0], sums[1]); });
}

}  // namespace zinc
