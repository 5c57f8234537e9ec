// Per-head RMS norm, then rotary embedding, in place. Grid: x over heads; the block owns one head: for the norm a
// thread sums every blockDim.x-th element, for the rotation it owns every blockDim.x-th pair. The norm factor's barrier
// lies between all loads for the sum and the first store.
//@ tile = { max_warps = 8 }
//@ block = ["32 * min(max_warps, ceil_div(head_dim, 64))"]
//@ grid = ["n_heads"]
#include "zinc/norm_rope.h"

#include "zinc/norm.cuh"
#include "zinc/rope.cuh"

ZINC_KERNEL void __launch_bounds__(32 * norm_rope_tile::max_warps)
    norm_rope(float* data, const float* __restrict__ weight, const float* __restrict__ inv_freq, norm_rope_push p) {
  float* const head = data + uint64_t{blockIdx.x} * p.head_dim;
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, p.position};
  const float r = zinc::row_inverse_rms(p.head_dim, __uint_as_float(p.eps_bits), [=](uint32_t i) { return head[i]; });
  zinc::rotate_head(
      p.head_dim, angles, [=](uint32_t i) { return weight[i] * (head[i] * r); },
      [=](uint32_t i, float v) { head[i] = v; });
}
