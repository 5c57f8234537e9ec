// Rotary embedding of the heads of consecutive tokens. Grid: x over tokens; the block owns one token, the threads of
// one threadIdx.y every blockDim.y-th head of it, an even number, and a thread every blockDim.x-th span of a head: of
// its pairs, then of the tail that is only copied. y may be x.
#include "zinc/rope_batched.h"

#include "zinc/rope.cuh"

ZINC_KERNEL void __launch_bounds__(3 * rope_batched_tile::threads)
    rope_batched(const float* x, float* y, const float* __restrict__ inv_freq, rope_batched_push p) {
  zinc::wait_for_previous();
  using namespace rope_batched_tile;
  const uint64_t token = uint64_t{blockIdx.x} * p.n_heads * p.stride;
  const uint32_t position = p.position_base + blockIdx.x;
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, position};
  if (p.stride % zinc::wide == 0 && p.rope_dim % (2 * zinc::wide) == 0) {
    zinc::rotate_spans<zinc::wide, ahead>(x + token, y + token, p.stride, angles, threadIdx.y, blockDim.y, p.n_heads);
  } else {
    zinc::rotate_spans<1, 1>(x + token, y + token, p.stride, angles, threadIdx.y, blockDim.y, p.n_heads);
  }
}
