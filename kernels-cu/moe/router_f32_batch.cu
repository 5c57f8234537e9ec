// f32 matrix times a batch of f32 vectors. Grid: x over (group of `tokens` tokens, group of `warps` rows), rows fastest
// so that the blocks of a token group run together; a warp owns one row and the group's tokens, a lane four consecutive
// columns of each 128.
//@ tile = { warps = 8, tokens = 4 }
//@ block = ["32 * warps"]
//@ grid = ["ceil_div(n_tokens, tokens) * ceil_div(m, warps)"]
#include "zinc/router_f32_batch.h"

#include "zinc/norm_matvec.cuh"

ZINC_KERNEL void __launch_bounds__(zinc::warp_size* router_f32_batch_tile::warps)
    router_f32_batch(const float* __restrict__ x, const float* __restrict__ weights, float* __restrict__ y,
                     router_f32_batch_push p) {
  using namespace router_f32_batch_tile;
  const uint32_t row_groups = (p.m - 1) / warps + 1;
  const uint64_t first_token = uint64_t{blockIdx.x / row_groups} * tokens;
  const uint64_t row = uint64_t{blockIdx.x % row_groups} * warps + zinc::warp_id();
  if (row >= p.m) return;

  const float4* const weights4 = reinterpret_cast<const float4*>(weights + row * p.k);
  const float* vector[tokens];
  // Tokens past the end repeat the last one and are not stored.
#pragma unroll
  for (unsigned j = 0; j < tokens; ++j) {
    const uint64_t token = first_token + j;
    vector[j] = x + (token < p.n_tokens ? token : p.n_tokens - 1) * p.stride_x;
  }
  float sum[tokens] = {};
  for (uint32_t i = zinc::lane_id(); i < p.k / 4; i += zinc::warp_size) {
    const float4 w = weights4[i];
#pragma unroll
    for (unsigned j = 0; j < tokens; ++j) {
      sum[j] = zinc::dot4(w, reinterpret_cast<const float4*>(vector[j])[i], sum[j]);
    }
  }
#pragma unroll
  for (unsigned j = 0; j < tokens; ++j) {
    const float total = zinc::warp_sum(sum[j]);
    const uint64_t token = first_token + j;
    if (zinc::lane_id() == 0 && token < p.n_tokens) y[token * p.stride_y + row] = total;
  }
}
