// Rotary embedding of one token's heads. Grid: x over heads; the block owns one head of `stride` elements, a thread
// every blockDim.x-th pair, then of the elements of the tail that is only copied: with so little work, few pairs to a
// thread count more than wide accesses. y may be x.
#include "zinc/rope_fused.h"

#include "zinc/rope.cuh"

ZINC_KERNEL void __launch_bounds__(32 * rope_fused_tile::max_warps)
    rope_fused(const float* x, float* y, const float* __restrict__ inv_freq, rope_fused_push p) {
  zinc::wait_for_previous();
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, p.position};
  const uint64_t head = uint64_t{blockIdx.x} * p.stride;
  zinc::rotate_spans<1, 1>(x + head, y + head, p.stride, angles, 0, 1, 1);
}
