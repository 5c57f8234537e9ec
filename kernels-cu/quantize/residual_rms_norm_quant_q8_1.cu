// residual_rms_norm whose rows are also quantised. Grid: x over token rows; the block owns one row, thread t the groups
// of four elements t, t + blockDim.x, ... ; eight neighbouring lanes hold one block of 32. The first pass updates
// hidden, the second reads it back.
//@ tile = { max_warps = 32, lane_groups = 1 }
//@ block = ["32 * min(max_warps, ceil_div(n, 128 * lane_groups))"]
//@ grid = ["n_tokens"]
#include "zinc/residual_rms_norm_quant_q8_1.h"

#include "zinc/norm.cuh"
#include "zinc/quantize.cuh"

ZINC_KERNEL void __launch_bounds__(32 * residual_rms_norm_quant_q8_1_tile::max_warps, 1)
    residual_rms_norm_quant_q8_1(float* __restrict__ hidden, const float* __restrict__ residual,
                                 float* __restrict__ norm_out, const float* __restrict__ weights,
                                 uint32_t* __restrict__ packed, float2* __restrict__ scale_dsum,
                                 residual_rms_norm_quant_q8_1_push p) {
  ZINC_SHARED(float[zinc::max_block_warps], partial);
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  const uint32_t groups = p.n / 4;
  float4* const stream = reinterpret_cast<float4*>(hidden + row);
  const float4* const branch = reinterpret_cast<const float4*>(residual + row);
  float squares = 0.0f;
  for (uint32_t i = threadIdx.x; i < groups; i += blockDim.x) {
    const float4 h = stream[i];
    const float4 b = branch[i];
    const float4 updated =
        make_float4(fmaf(p.scale, b.x, h.x), fmaf(p.scale, b.y, h.y), fmaf(p.scale, b.z, h.z), fmaf(p.scale, b.w, h.w));
    stream[i] = updated;
    squares = fmaf(updated.x, updated.x, squares);
    squares = fmaf(updated.y, updated.y, squares);
    squares = fmaf(updated.z, updated.z, squares);
    squares = fmaf(updated.w, updated.w, squares);
  }
  const float r = zinc::inverse_rms(zinc::block_sum(squares, partial), p.n, p.eps);
  uint32_t* const packed_row = packed + uint64_t{blockIdx.x} * p.stride_packed;
  float2* const scale_row = scale_dsum + uint64_t{blockIdx.x} * p.blocks_per_token;
  // n is a multiple of 256, so a warp has all its lanes in the row or none.
  for (uint32_t i = threadIdx.x; i < groups; i += blockDim.x) {
    const float4 h = stream[i];
    const float4 w = reinterpret_cast<const float4*>(weights)[i];
    const float4 y = make_float4((w.x * h.x) * r, (w.y * h.y) * r, (w.z * h.z) * r, (w.w * h.w) * r);
    if (p.write_norm_out != 0) reinterpret_cast<float4*>(norm_out + row)[i] = y;
    const zinc::QuantBlock quants = zinc::quantize_block<zinc::DirectFactor>(y);
    packed_row[i] = quants.word;
    if (i % zinc::quant_block_lanes == 0) {
      scale_row[i / zinc::quant_block_lanes] = make_float2(quants.scale, quants.scale * static_cast<float>(quants.sum));
    }
  }
}
