// Causal attention of consecutive query tokens over the paged KV cache. Grid: x over (tile of 8 * warps queries, query
// head), heads fastest; the block owns one head of its queries, a warp eight of them. Heads of 64, 128, 256 and 512
// elements are multiplied on the tensor cores where shared memory holds the queries, others with plain instructions;
// for those, tiles are half as long for heads of more than 256 elements. Up to `few` queries: x over (query, kv head,
// group of up to `heads` of its query heads, block of the cluster), as flash_attn does it for each of them.
#include "zinc/flash_attn_batched.h"

#include "zinc/attention_batch.cuh"
#include "zinc/attention_decode.cuh"

namespace {

constexpr unsigned most_warps(unsigned a, unsigned b) { return a > b ? a : b; }

// What one cluster does of up to `few` queries.
template <unsigned warps, unsigned heads, unsigned max_mma_dim>
ZINC_DEVICE void attend_query(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                              float* out, const float* sinks, const flash_attn_batched_push& p) {
  ZINC_DYNAMIC_SHARED(unsigned char, shared);
  const zinc::HeadGroup<heads> group(p.n_heads, p.n_kv_heads);
  const uint32_t kv_head = group.outer % p.n_kv_heads;
  const uint32_t query = group.outer / p.n_kv_heads;
  const uint32_t first_head = group.first_head(kv_head);
  const zinc::PagedCache cache = {k_cache, v_cache, page_table, p.page_size, p.n_kv_heads, kv_head, p.head_dim};
  const uint64_t first = (uint64_t{query} * p.n_heads + first_head) * p.head_dim;
  const auto store = [=](uint32_t row, uint32_t d, float4 o, zinc::SliceSums sums) {
    const float factor = zinc::output_factor(sums, sinks[uint64_t{p.sink_offset} + first_head + row]);
    *reinterpret_cast<float4*>(out + first + uint64_t{row} * p.head_dim + d) = zinc::scaled(o, factor);
  };
  const uint64_t end = uint64_t{p.seq_start} + query + 1;
  zinc::attend_heads<warps, max_mma_dim>(q + first, group.present(), cache,
                                         zinc::attention_scale(p.attn_scale_bits, p.head_dim), 0, end, shared, store);
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * most_warps(flash_attn_batched_tile::warps, flash_attn_batched_tile::few_warps),
                                   1)
    flash_attn_batched(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                       float* out, const float* sinks, flash_attn_batched_push p) {
  using namespace flash_attn_batched_tile;
  if constexpr (few > 0) {
    if (p.n_queries <= few) {
      return attend_query<few_warps, heads, max_mma_dim>(q, k_cache, v_cache, page_table, out, sinks, p);
    }
  }
  const auto attend = [&](auto attention) {
    zinc::attend_batch<decltype(attention), warps>(q, k_cache, v_cache, page_table, out, sinks, p);
  };
  if constexpr (max_mma_dim >= 128) {
    if (p.head_dim == 64) return attend(zinc::BatchMma<warps, 64>{});
    if (p.head_dim == 128) return attend(zinc::BatchMma<warps, 128>{});
  }
  if constexpr (max_mma_dim >= 512) {
    if (p.head_dim == 256) return attend(zinc::BatchMma<warps, 256>{});
    if (p.head_dim == 512) return attend(zinc::BatchMma<warps, 512>{});
  }
  if (p.head_dim <= 128) return attend(zinc::BatchAttention<warps, 1, keys>{});
  if (p.head_dim <= 256) return attend(zinc::BatchAttention<warps, 2, keys>{});
  attend(zinc::BatchAttention<warps, 4, keys / 2>{});
}
