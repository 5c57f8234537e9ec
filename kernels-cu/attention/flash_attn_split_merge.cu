// Combines the slices of a split flash_attn. Grid: x over query heads; the block owns one head, a thread every
// blockDim.x-th element, and evaluates the slices' weights itself.
#include "zinc/flash_attn_split_merge.h"

#include "zinc/attention.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_split_merge_tile::max_warps)
    flash_attn_split_merge(const float* __restrict__ partial, float* __restrict__ out, const float* __restrict__ sinks,
                           flash_attn_split_merge_push p) {
  zinc::wait_for_previous();
  using flash_attn_split_merge_tile::batch;
  const uint32_t head = blockIdx.x;
  const uint64_t first_slice = uint64_t{head} * p.n_i_chunks;
  const float* const outputs = partial + first_slice * p.head_dim;
  const float* const sums = partial + uint64_t{p.n_heads} * p.n_i_chunks * p.head_dim + 2 * first_slice;
  const float sink = sinks[uint64_t{p.sink_offset} + head];

  float max = zinc::attention_floor;
#pragma unroll batch
  for (uint32_t c = 0; c < p.n_i_chunks; ++c) max = fmaxf(max, sums[2 * c]);
  max = fmaxf(max, sink);  // fmaxf ignores a NaN, which stands for no sink
  const float sink_weight = sink != sink ? 0.0f : expf(sink - max);

  for (uint32_t d = threadIdx.x; d < p.head_dim; d += blockDim.x) {
    float total = 0.0f;
    float sum = 0.0f;
    for (uint32_t first = 0; first < p.n_i_chunks; first += batch) {
      // All loads of a batch of slices before the first of them is waited for.
      float slice_sum[batch];
      float slice_max[batch];
      float value[batch];
#pragma unroll
      for (uint32_t i = 0; i < batch; ++i) {
        const uint32_t c = min(first + i, p.n_i_chunks - 1);
        slice_sum[i] = first + i < p.n_i_chunks ? sums[2 * c + 1] : 0.0f;
        slice_max[i] = sums[2 * c];
        value[i] = outputs[uint64_t{c} * p.head_dim + d];
      }
#pragma unroll
      for (uint32_t i = 0; i < batch; ++i) {
        if (slice_sum[i] == 0.0f) continue;  // an empty slice; the NaN of a broken one goes on
        const float weight = slice_sum[i] > 0.0f ? expf(slice_max[i] - max) : 0.0f;
        total = fmaf(weight, slice_sum[i], total);
        sum = fmaf(weight, value[i], sum);
      }
    }
    out[uint64_t{head} * p.head_dim + d] = sum * zinc::reciprocal_or_zero(total + sink_weight);
  }
}
