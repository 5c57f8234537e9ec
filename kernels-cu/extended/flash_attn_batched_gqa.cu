// Causal attention of consecutive query tokens over the paged KV cache. Grid: x over (group of block_queries queries,
// query head), heads fastest; the block owns one head of its queries. Each of query_warps pairs of warps owns four
// consecutive queries (two for heads above 256 elements, whose block takes two rounds), the warps of a pair take turns
// at groups of keys, and a lane owns four elements of each 128 of a head.
//@ tile = { query_warps = 4, key_warps = 2, rows = 4, long_head_rows = 2 }
//@ block = ["32 * query_warps * key_warps"]
//@ grid = ["ceil_div(n_queries, query_warps * rows) * n_heads"]
//@ shared = "query_warps * key_warps * rows * (min(head_dim, 256) + 2) * 4"
#include "zinc/flash_attn_batched_gqa.h"

#include "zinc/attention_batch.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_batched_gqa_tile::query_warps *
                                       flash_attn_batched_gqa_tile::key_warps,
                                   1)
    flash_attn_batched_gqa(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                           float* out, const float* sinks, flash_attn_batched_gqa_push p) {
  using namespace flash_attn_batched_gqa_tile;
  zinc::attend_batch<zinc::WarpGrid<query_warps, key_warps>, rows, long_head_rows>(q, k_cache, v_cache, page_table, out,
                                                                                   sinks, p);
}
