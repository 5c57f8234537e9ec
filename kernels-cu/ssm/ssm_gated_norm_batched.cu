// RMS norm of one hidden vector with an unmodified copy of it (the name is historical). Grid: one block; a thread owns
// every blockDim.x-th element and holds its `held` first ones in registers.
//@ tile = { max_warps = 32, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(n, 32 * held))"]
//@ grid = ["1"]
#include "zinc/ssm_gated_norm_batched.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_batched_tile::max_warps, 1)
    ssm_gated_norm_batched(const float* __restrict__ hidden, const float* __restrict__ weight,
                           float* __restrict__ norm_out, float* __restrict__ hidden_out,
                           ssm_gated_norm_batched_push p) {
  zinc::rms_norm_row<ssm_gated_norm_batched_tile::held>(
      p.n, p.eps, [=](uint32_t i) { return hidden[i]; },
      [=](uint32_t i, float v, float r) {
        norm_out[i] = weight[i] * (v * r);
        hidden_out[i] = v;
      });
}
