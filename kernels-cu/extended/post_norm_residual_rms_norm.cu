// Norms a branch, adds it to the stream, norms the stream. Grid: x over token rows; the block owns one row, thread t
// its elements t, t + blockDim.x, ... in all three passes. The sum h is formed anew in the last pass, from the same
// values and by the same operations, so that rows of any length need neither registers nor a stored copy.
//@ tile = { max_warps = 32, per_lane = 4 }
//@ block = ["32 * min(max_warps, ceil_div(n, 32 * per_lane))"]
//@ grid = ["n_tokens"]
#include "zinc/post_norm_residual_rms_norm.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * post_norm_residual_rms_norm_tile::max_warps, 1)
    post_norm_residual_rms_norm(float* __restrict__ hidden, const float* __restrict__ residual,
                                const float* __restrict__ post_weights, float* __restrict__ norm_out,
                                const float* __restrict__ norm_weights, post_norm_residual_rms_norm_push p) {
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  const float branch_r = zinc::row_inverse_rms(p.n, p.eps, [=](uint32_t i) { return residual[row + i]; });
  const auto stream = [=](uint32_t i) { return fmaf(post_weights[i], residual[row + i] * branch_r, hidden[row + i]); };
  const float stream_r = zinc::row_inverse_rms(p.n, p.eps, stream);
  for (uint64_t i = threadIdx.x; i < p.n; i += blockDim.x) {
    const float h = stream(static_cast<uint32_t>(i));
    norm_out[row + i] = norm_weights[i] * (h * stream_r);
    hidden[row + i] = h * p.hidden_scale;
  }
}
