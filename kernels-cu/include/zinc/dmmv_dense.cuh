// Matrix-vector products of f32 and f16 matrices with an f32 vector.
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

// This lane's share of the dot products of `rows` rows with x. wide: 16 bytes of a row at a time, which needs rows and
// x to be 16-byte aligned and k to be a multiple of wide_columns; else one column at a time, lanes on neighbouring
// columns.
template <class Element, bool wide, unsigned rows>
ZINC_DEVICE void dot_dense(float (&sum)[rows][1], const uint8_t* const (&row)[rows], const float* x, uint32_t k) {
  constexpr unsigned columns = wide ? Element::wide_columns : 1;
#pragma unroll 2
  for (uint64_t c = lane_id() * columns; c < k; c += warp_size * columns) {
    float activation[columns];
    if constexpr (wide) {
#pragma unroll
      for (unsigned i = 0; i < columns; i += 4) {
        const float4 v = __ldg(reinterpret_cast<const float4*>(x + c + i));
        activation[i] = v.x;
        activation[i + 1] = v.y;
        activation[i + 2] = v.z;
        activation[i + 3] = v.w;
      }
    } else {
      activation[0] = __ldg(x + c);
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
      for (unsigned i = 0; i < columns; ++i) sum[r][0] = fmaf(weight[i], activation[i], sum[r][0]);
    }
  }
}

// The plain contract for a dense matrix: y[r] = dot, or y[r] += dot where acc_mode is not 0.
template <class Element, class Shape, class Push>
ZINC_DEVICE void dmmv_dense(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  const uint8_t* const matrix[] = {weights + p.a_offset};
  const float* const activations = at_byte<float>(x, p.x_offset);
  const StoreRow store{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0};
  const bool wide = is_aligned(matrix[0], 16) && is_aligned(activations, 16) && p.k % Element::wide_columns == 0;
  for_row_groups<Shape>(
      matrix, uint64_t{p.k} * Element::bytes, p.m, blockIdx.x, gridDim.x,
      [&](float (&sum)[Shape::rows][1], const uint8_t* const(&row)[Shape::rows]) {
        if (wide) {
          dot_dense<Element, true>(sum, row, activations, p.k);
        } else {
          dot_dense<Element, false>(sum, row, activations, p.k);
        }
      },
      store);
}

}  // namespace zinc
