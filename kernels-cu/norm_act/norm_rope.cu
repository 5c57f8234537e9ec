// Per-head RMS norm, then rotary embedding, in place. Grid: x over heads; the block owns one head, a thread every
// blockDim.x-th pair of it. The norm factor's reduction lies between all loads and the first store.
#include "zinc/norm_rope.h"

#include "zinc/norm_rope.cuh"

ZINC_KERNEL void __launch_bounds__(32 * norm_rope_tile::max_warps, 1)
    norm_rope(float* data, const float* __restrict__ weight, const float* __restrict__ inv_freq, norm_rope_push p) {
  zinc::wait_for_previous();
  float* const head = data + uint64_t{blockIdx.x} * p.head_dim;
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, p.position};
  zinc::norm_and_rotate(head, weight, head, p.head_dim, angles, __uint_as_float(p.eps_bits));
}
