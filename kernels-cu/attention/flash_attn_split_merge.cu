// Combines the slices of a split flash_attn. Grid: x over query heads; the block owns one head, a thread every
// blockDim.x-th element, and evaluates the slices' weights itself.
//@ tile = { max_warps = 8 }
//@ block = ["32 * min(max_warps, ceil_div(head_dim, 32))"]
//@ grid = ["n_heads"]
#include "zinc/flash_attn_split_merge.h"

#include "zinc/attention.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_split_merge_tile::max_warps)
    flash_attn_split_merge(const float* __restrict__ partial, float* __restrict__ out, const float* __restrict__ sinks,
                           flash_attn_split_merge_push p) {
  const uint32_t head = blockIdx.x;
  const uint64_t first_slice = uint64_t{head} * p.n_i_chunks;
  const float* const outputs = partial + first_slice * p.head_dim;
  const float* const sums = partial + uint64_t{p.n_heads} * p.n_i_chunks * p.head_dim + 2 * first_slice;
  const float sink = sinks[uint64_t{p.sink_offset} + head];

  float max = zinc::attention_floor;
  for (uint32_t c = 0; c < p.n_i_chunks; ++c) max = fmaxf(max, sums[2 * c]);
  max = fmaxf(max, sink);  // fmaxf ignores a NaN, which stands for no sink
  const float sink_weight = sink != sink ? 0.0f : expf(sink - max);

  for (uint32_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
    float total = 0.0f;
    float sum = 0.0f;
    for (uint32_t c = 0; c < p.n_i_chunks; ++c) {
      const float slice_sum = sums[2 * c + 1];
      if (slice_sum == 0.0f) continue;  // an empty slice; the NaN of a broken one goes on
      const float weight = slice_sum > 0.0f ? expf(sums[2 * c] - max) : 0.0f;
      total = fmaf(weight, slice_sum, total);
      sum = fmaf(weight, outputs[uint64_t{c} * p.head_dim + d], sum);
    }
    out[uint64_t{head} * p.head_dim + d] = sum * zinc::reciprocal_or_zero(total + sink_weight);
  }
}
