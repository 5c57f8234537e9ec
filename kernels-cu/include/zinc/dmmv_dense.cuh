// Matrix-vector products of f32 and f16 matrices with f32 vectors.
#pragma once

#include "zinc/dmmv_rows.cuh"
#include "zinc/half.cuh"

namespace zinc {

// Element types of dense matrices. load<count> reads that many neighbouring elements in one access.
struct DenseF32 {
  static constexpr unsigned bytes = 4;
  static constexpr unsigned wide_columns = 4;

  static ZINC_DEVICE float load(const uint8_t* p) { return __ldg(reinterpret_cast<const float*>(p)); }
  static ZINC_DEVICE void load_wide(const uint8_t* p, float (&w)[wide_columns]) {
    const float4 v = __ldcs(reinterpret_cast<const float4*>(p));
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
  }
};

struct DenseF16 {
  static constexpr unsigned bytes = 2;
  static constexpr unsigned wide_columns = 8;

  static ZINC_DEVICE float load(const uint8_t* p) { return half_to_float(load_u16(p)); }
  static ZINC_DEVICE void load_wide(const uint8_t* p, float (&w)[wide_columns]) {
    uint32_t pairs[4];
    load_four_words<true>(p, pairs);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      w[2 * i] = half_to_float(static_cast<uint16_t>(pairs[i]));
      w[2 * i + 1] = half_to_float(static_cast<uint16_t>(pairs[i] >> 16));
    }
  }
};

// The share of one of `lanes` lanes of the dot products of `rows` rows with `vectors` vectors. wide: 16 bytes of a row
// at a time, which needs rows and vectors to be 16-byte aligned and k to be a multiple of wide_columns; else one column
// at a time, lanes on neighbouring columns.
template <class Element, bool wide, unsigned rows, unsigned vectors>
ZINC_DEVICE void dot_dense(float (&sum)[rows][vectors], const uint8_t* const (&row)[rows],
                           const float* const (&x)[vectors], uint32_t k, unsigned lane, unsigned lanes) {
  constexpr unsigned columns = wide ? Element::wide_columns : 1;
#pragma unroll 2
  for (uint64_t c = lane * columns; c < k; c += lanes * columns) {
    float activation[vectors][columns];
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      if constexpr (wide) {
#pragma unroll
        for (unsigned i = 0; i < columns; i += 4) {
          const float4 four = __ldg(reinterpret_cast<const float4*>(x[v] + c + i));
          activation[v][i] = four.x;
          activation[v][i + 1] = four.y;
          activation[v][i + 2] = four.z;
          activation[v][i + 3] = four.w;
        }
      } else {
        activation[v][0] = __ldg(x[v] + c);
      }
    }
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      float weight[columns];
      if constexpr (wide) {
        Element::load_wide(row[r] + c * Element::bytes, weight);
      } else {
        weight[0] = Element::load(row[r] + c * Element::bytes);
      }
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) {
#pragma unroll
        for (unsigned i = 0; i < columns; ++i) sum[r][v] = fmaf(weight[i], activation[v][i], sum[r][v]);
      }
    }
  }
}

// Products of `matrices` dense matrices of m rows of k columns with the same vectors, for the row groups of this block
// in x; see for_row_groups for finish.
template <class Element, class Shape, unsigned matrices, class Finish>
ZINC_DEVICE void matvec_dense(const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k,
                              const float* const (&x)[Shape::vectors], Finish finish) {
  constexpr unsigned rows = matrices * Shape::rows;
  bool wide = k % Element::wide_columns == 0;
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], 16);
#pragma unroll
  for (unsigned v = 0; v < Shape::vectors; ++v) wide = wide && is_aligned(x[v], 16);
  for_row_groups<Shape>(
      matrix, uint64_t{k} * Element::bytes, m, blockIdx.x, gridDim.x,
      [&](float (&sum)[rows][Shape::vectors], const uint8_t* const(&row)[rows]) {
        if (wide) {
          dot_dense<Element, true>(sum, row, x, k, lane_id(), warp_size);
        } else {
          dot_dense<Element, false>(sum, row, x, k, lane_id(), warp_size);
        }
      },
      finish);
}

// The product of one row of a dense matrix with a vector by all warps of the block: for matrices of so few rows that
// each has a block of its own. finish is called in one thread.
template <class Element, class Shape, class Finish>
ZINC_DEVICE void row_dense(const uint8_t* matrix, uint32_t r, uint32_t k, const float* x, Finish finish) {
  float sum[1][1] = {};
  const uint8_t* const row[] = {matrix + r * (uint64_t{k} * Element::bytes)};
  const float* const vector[] = {x};
  if (k % Element::wide_columns == 0 && is_aligned(matrix, 16) && is_aligned(x, 16)) {
    dot_dense<Element, true>(sum, row, vector, k, threadIdx.x, Shape::threads);
  } else {
    dot_dense<Element, false>(sum, row, vector, k, threadIdx.x, Shape::threads);
  }
  ZINC_SHARED(float[Shape::warps], partial);
  const float part = warp_sum(sum[0][0]);
  if (lane_id() == 0) partial[warp_id()] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    float dots[1] = {0.0f};
#pragma unroll
    for (unsigned w = 0; w < Shape::warps; ++w) dots[0] += partial[w];
    finish(r, 0, dots);
  }
}

// The plain contract for a dense matrix: y[r] = dot, or y[r] += dot where acc_mode is not 0.
template <class Element, class Shape, class Push>
ZINC_DEVICE void dmmv_dense(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  const uint8_t* const matrix[] = {weights + p.a_offset};
  const float* const vector[] = {at_byte<float>(x, p.x_offset)};
  const StoreRow store{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0};
  if (p.m <= gridDim.x) {
    if (blockIdx.x < p.m) row_dense<Element, Shape>(matrix[0], blockIdx.x, p.k, vector[0], store);
  } else {
    matvec_dense<Element, Shape>(matrix, p.m, p.k, vector, store);
  }
}

// Two f32 matrices applied to n_tokens vectors, Shape::vectors at a time. Grid: x over row groups, y over such chunks
// of vectors; both are walked with the grid's stride.
template <class Shape, class Push>
ZINC_DEVICE void dmmv_f32_dual(const uint8_t* alpha, const uint8_t* beta, const float* x, float* alpha_out,
                               float* beta_out, const Push& p) {
  const uint8_t* const matrix[] = {alpha, beta};
  for (uint64_t first = uint64_t{blockIdx.y} * Shape::vectors; first < p.n_tokens;
       first += uint64_t{gridDim.y} * Shape::vectors) {
    // Vectors past the end are replaced by the last one and not stored.
    const float* vector[Shape::vectors];
#pragma unroll
    for (unsigned v = 0; v < Shape::vectors; ++v) {
      const uint64_t token = first + v < p.n_tokens ? first + v : p.n_tokens - 1;
      vector[v] = x + token * p.stride_x;
    }
    matvec_dense<DenseF32, Shape>(matrix, p.m, p.k, vector, [=](uint32_t r, unsigned v, const float (&dots)[2]) {
      if (first + v >= p.n_tokens) return;
      alpha_out[(first + v) * p.stride_y + r] = dots[0];
      beta_out[(first + v) * p.stride_y + r] = dots[1];
    });
  }
}

// The dot product of two f32 vectors from 16-byte aligned addresses, k a multiple of 4, by one warp; all lanes get it.
ZINC_DEVICE float warp_dot_f32(const uint8_t* weights, const float* x, uint32_t k) {
  float sum[1][1] = {};
  const uint8_t* const row[] = {weights};
  const float* const vector[] = {x};
  dot_dense<DenseF32, true>(sum, row, vector, k, lane_id(), warp_size);
  return warp_sum(sum[0][0]);
}

}  // namespace zinc
