// Rotary embedding of one token's heads. Grid: x over heads, some to a block (y of the block); a thread owns every
// blockDim.x-th span of a head: of its pairs, then of the tail that is only copied. y may be x.
//@ tile = { threads = 64 }
//@ block = ["min(threads, ceil_div(stride - rope_dim / 2, 4))", "ceil_div(threads, min(threads, ceil_div(stride - rope_dim / 2, 4)))"]
//@ grid = ["ceil_div(n_heads, ceil_div(threads, min(threads, ceil_div(stride - rope_dim / 2, 4))))"]
#include "zinc/rope_fused.h"

#include "zinc/rope.cuh"

ZINC_KERNEL void __launch_bounds__(2 * rope_fused_tile::threads)
    rope_fused(const float* x, float* y, const float* __restrict__ inv_freq, rope_fused_push p) {
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, p.position};
  const uint32_t head = blockIdx.x * blockDim.y + threadIdx.y;
  zinc::rotate_heads(x, y, p.stride, angles, head, gridDim.x * blockDim.y, p.n_heads);
}
