// Rotary embedding of the heads of consecutive tokens. Grid: x over (token, head); the block owns one head of `stride`
// elements, a thread every blockDim.x-th pair and every blockDim.x-th element of the tail that is only copied. y may be
// x.
//@ tile = { max_warps = 8 }
//@ block = ["32 * min(max_warps, ceil_div(stride, 64))"]
//@ grid = ["n_tokens * n_heads"]
#include "zinc/rope_batched.h"

#include "zinc/rope.cuh"

ZINC_KERNEL void __launch_bounds__(32 * rope_batched_tile::max_warps, 1)
    rope_batched(const float* x, float* y, const float* __restrict__ inv_freq, rope_batched_push p) {
  const uint64_t head = uint64_t{blockIdx.x} * p.stride;
  const uint32_t position = p.position_base + blockIdx.x / p.n_heads;
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, position};
  zinc::rotate_head(
      p.stride, angles, [=](uint32_t i) { return x[head + i]; }, [=](uint32_t i, float v) { y[head + i] = v; });
}
