// Decode attention over the paged KV cache. Grid: x over (kv head, slice, group of up to `heads` of its query heads,
// block of the cluster), the last fastest. The blocks of a cluster deal the keys of the slice to their warps, a warp
// computes all heads of the group for its keys, and the results are combined through shared memory. Not started before
// the kernel ahead has ended: clusters would then crowd in what that one leaves free, and share its way to memory.
#include "zinc/flash_attn.h"

#include "zinc/attention_decode.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_tile::warps, 1)
    flash_attn(const float* __restrict__ q, const float* __restrict__ k_cache, const float* __restrict__ v_cache,
               const uint32_t* __restrict__ page_table, float* __restrict__ out, const float* __restrict__ sinks,
               flash_attn_push p) {
  using namespace flash_attn_tile;
  ZINC_DYNAMIC_SHARED(unsigned char, shared);
  const zinc::HeadGroup<heads> group(p.n_heads, p.n_kv_heads);
  const uint32_t slice = group.outer % p.n_i_chunks;
  const uint32_t kv_head = group.outer / p.n_i_chunks;
  const uint32_t first_head = group.first_head(kv_head);
  const uint64_t begin = uint64_t{slice} * p.seq_len / p.n_i_chunks;
  const uint64_t end = (uint64_t{slice} + 1) * p.seq_len / p.n_i_chunks;
  const zinc::PagedCache cache = {k_cache, v_cache, page_table, p.page_size, p.n_kv_heads, kv_head, p.head_dim};
  const float scale = zinc::attention_scale(p.attn_scale_bits, p.head_dim);
  const float* const queries = q + uint64_t{first_head} * p.head_dim;
  float* const slice_sums = out + uint64_t{p.n_heads} * p.n_i_chunks * p.head_dim;

  const auto store = [=](uint32_t row, uint32_t d, float4 o, zinc::SliceSums sums) {
    const uint64_t at = uint64_t{first_head + row} * p.n_i_chunks + slice;
    if (p.n_i_chunks == 1) {
      o = zinc::scaled(o, zinc::output_factor(sums, sinks[uint64_t{p.sink_offset} + first_head + row]));
    } else if (d == 0) {
      slice_sums[2 * at] = sums.max;
      slice_sums[2 * at + 1] = sums.sum;
    }
    *reinterpret_cast<float4*>(out + at * p.head_dim + d) = o;
  };
  zinc::attend_heads<warps, max_mma_dim>(queries, group.present(), cache, scale, begin, end, shared, store);
}
