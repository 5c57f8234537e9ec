// RMS norm of one vector fused with small f32 matrix-vector products of the normalised vector.
#pragma once
#include "zinc/norm.cuh"

namespace zinc {

ZINC_DEVICE float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

ZINC_DEVICE float4 product(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

// One row of each of several matrices with k columns, and where its product with the normalised vector goes.
template <unsigned matrices>
struct MatrixRows {
  const float* row[matrices];
  float* out[matrices];
};

// out = r * sum of row[i] * (weight[i] * hidden[i]) for each of the rows, r the inverse RMS of hidden. r is common to
// all terms: taken out of the sum, it is found in the same pass over the vector. The block owns the rows; k is a
// multiple of 4 and all vectors are 16-byte aligned. Every thread must call this.
template <unsigned matrices>
ZINC_DEVICE void norm_times_rows(const float* __restrict__ hidden, const float* __restrict__ weight, uint32_t k,
                                 float eps, const MatrixRows<matrices>& rows) {
  ZINC_SHARED(float[matrices + 1][max_block_warps], partial);
  const float4* const hidden4 = reinterpret_cast<const float4*>(hidden);
  const float4* const weight4 = reinterpret_cast<const float4*>(weight);
  float squares = 0.0f;
  float dots[matrices] = {};
  for (uint32_t i = threadIdx.x; i < k / 4; i += blockDim.x) {
    const float4 h = hidden4[i];
    const float4 weighted = product(weight4[i], h);
    squares = dot4(h, h, squares);
#pragma unroll
    for (unsigned m = 0; m < matrices; ++m) {
      dots[m] = dot4(weighted, reinterpret_cast<const float4*>(rows.row[m])[i], dots[m]);
    }
  }
  const float r = inverse_rms(block_sum(squares, partial[matrices]), k, eps);
#pragma unroll
  for (unsigned m = 0; m < matrices; ++m) {
    const float sum = block_sum(dots[m], partial[m]);
    if (threadIdx.x == 0) *rows.out[m] = r * sum;
  }
}

// out[i] = weight[i] * (hidden[i] * r) by one block.
template <unsigned held>
ZINC_DEVICE void store_norm(const float* __restrict__ hidden, const float* __restrict__ weight, float* __restrict__ out,
                            uint32_t k, float eps) {
  norm_row<held>(
      k, eps, true, [=](auto at) { return at.of(hidden); }, [=](auto at) { return at.of(weight); },
      [=](auto at, const auto& v, const auto& w, float r) {
        at.to(out, each([=](float x, float y) { return y * (x * r); }, v, w));
      });
}

}  // namespace zinc
