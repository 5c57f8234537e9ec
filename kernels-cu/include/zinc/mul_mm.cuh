// Matrix-matrix products of quantized matrices with many f32 vectors (tokens): tiles by the f16 tensor cores where they
// are exact enough, by f32 multiply-adds otherwise.
#pragma once

#include "zinc/gated.cuh"
#include "zinc/mul_mm_half.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/quant/run.cuh"

namespace zinc {

// Where tokens come from: token t < count is the floats at first + t * stride; 4-byte alignment is enough.
struct Tokens {
  const float* first;
  uint64_t stride;
  uint32_t count;

  ZINC_DEVICE const float* columns(uint32_t t) const { return first + uint64_t{t} * stride; }
  // Whether the columns of all tokens are 16-byte aligned.
  ZINC_DEVICE bool aligned() const { return is_aligned(first, sizeof(float4)) && stride % 4 == 0; }
};

// A tile by f32 multiply-adds: finish(row, token, sums of each matrix) for all rows before m and tokens that x has, in
// any order. A thread has one row of each matrix for `at_once` tokens.
template <class Format, class Shape, class Source, class Finish>
ZINC_DEVICE void plain_tile(const uint8_t* const (&matrix)[Shape::matrices], uint32_t m, uint32_t row, const Source& x,
                            uint32_t token, uint32_t k, Finish finish) {
  constexpr unsigned at_once = 4;
  static_assert(Shape::tokens % at_once == 0);
  for (unsigned i = threadIdx.x; i < Shape::matrix_rows * (Shape::tokens / at_once); i += Shape::threads) {
    const uint32_t r = row + i % Shape::matrix_rows;
    const uint32_t first = token + i / Shape::matrix_rows * at_once;
    if (r >= m || first >= x.count) continue;
    float sum[at_once][Shape::matrices] = {};
    for (uint32_t group = 0; group < k / run_columns; ++group) {
#pragma unroll
      for (unsigned i = 0; i < Shape::matrices; ++i) {
        const Run<Format> run = load_run<false, Format>(matrix[i] + r * row_bytes<Format>(k), group);
#pragma unroll
        for (unsigned t = 0; t < at_once; ++t) {
          const float* const columns = x.columns(min(first + t, x.count - 1));
          // Summed apart from the total: the error of a long sum then grows with the number of runs and not of columns.
          float part = 0.0f;
#pragma unroll
          for (unsigned c = 0; c < run_columns; ++c) {
            part = fmaf(run.weight(c / 4, c % 4), __ldg(columns + group * run_columns + c), part);
          }
          sum[t][i] += part;
        }
      }
    }
#pragma unroll
    for (unsigned t = 0; t < at_once; ++t) {
      if (first + t < x.count) finish(r, first + t, sum[t]);
    }
  }
}

// The tile at (row, token) by all threads of the block: finish as plain_tile has it. `wide` says that blocks and tokens
// are aligned for the widest loads.
template <bool wide, class Format, class Shape, class Source, class Finish>
ZINC_DEVICE void any_tile(HalfTile<Format, Shape>& tile, uint32_t (&limits)[2],
                          const uint8_t* const (&matrix)[Shape::matrices], uint32_t m, uint32_t row, const Source& x,
                          uint32_t token, uint32_t k, Finish finish) {
  if constexpr (has_half_mma) {
    HalfSums<Shape> sum = {};
    if (half_product<wide, Format>(sum, tile, limits, matrix, m, row, x, token, k)) {
      constexpr unsigned first_tiles = Shape::row_tiles / Shape::matrices;
#pragma unroll
      for (unsigned t = 0; t < Shape::token_tiles * 2; ++t) {
        const uint32_t at_token = token + Shape::warp_token() + t / 2 * 8 + lane_id() % 4 * 2 + t % 2;
        if (at_token >= x.count) continue;
#pragma unroll
        for (unsigned r = 0; r < first_tiles * 2; ++r) {
          const uint32_t at_row = row + Shape::matrix_row(Shape::warp_row() + r * 8 + lane_id() / 4);
          float sums[Shape::matrices];
#pragma unroll
          for (unsigned i = 0; i < Shape::matrices; ++i) {
            sums[i] = sum[t / 2][i * first_tiles + r / 2][r % 2 * 2 + t % 2];
          }
          if (at_row < m) finish(at_row, at_token, sums);
        }
      }
      return;
    }
  }
  plain_tile<Format, Shape>(matrix, m, row, x, token, k, finish);
}

template <class Format, unsigned matrices>
ZINC_DEVICE bool all_wide(const uint8_t* const (&matrix)[matrices]) {
  bool wide = true;
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], Format::wide_alignment);
  return wide;
}

// d[t * stride_d + r] = combine(sums of row r of each matrix times token t). a_offset counts bytes, the others floats.
// `bytes` is the size of the dynamic shared memory.
template <class Format, class Shape, unsigned bytes, class Push, class Combine>
ZINC_DEVICE void mul_mm_combined(const uint8_t* const (&matrix)[Shape::matrices], const float* b, float* d,
                                 const Push& p, Combine combine) {
  using Tile = HalfTile<Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  ZINC_SHARED(uint32_t[2], limits);
  const Tokens x{b + p.b_offset, p.stride_b, p.n};
  float* const out = d + p.d_offset;
  const auto finish = [=](uint32_t row, uint32_t token, const float (&sums)[Shape::matrices]) {
    out[uint64_t{token} * p.stride_d + row] = combine(sums);
  };
  const bool wide = all_wide<Format>(matrix) && x.aligned();
  for_tiles<Shape::matrix_rows, Shape::tokens>(p.m, p.n, [&](uint32_t row, uint32_t token) {
    if (wide) {
      any_tile<true, Format, Shape>(*tile, limits, matrix, p.m, row, x, token, p.k, finish);
    } else {
      any_tile<false, Format, Shape>(*tile, limits, matrix, p.m, row, x, token, p.k, finish);
    }
  });
}

template <class Format, class Shape, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm(const uint8_t* a, const float* b, float* d, const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_combined<Format, Shape, bytes>(matrix, b, d, p, [](const float (&sums)[1]) { return sums[0]; });
}

// d[t * stride_d + r] = Activation(gate sum, up sum).
template <class Format, class Shape, class Activation, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_gate_up(const uint8_t* gate, const uint8_t* up, const float* b, float* d, const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_combined<Format, Shape, bytes>(matrix, b, d, p,
                                        [](const float (&sums)[2]) { return Activation::of(sums[0], sums[1]); });
}

}  // namespace zinc
