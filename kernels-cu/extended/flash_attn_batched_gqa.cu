// flash_attn_batched for heads of 256 elements. Grid: x over (tile of 8 * warps queries, query head), heads fastest;
// the block owns one head of its queries, a warp eight of them.
#include "zinc/flash_attn_batched_gqa.h"

#include "zinc/attention_batch.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_batched_gqa_tile::warps)
    flash_attn_batched_gqa(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                           float* out, const float* sinks, flash_attn_batched_gqa_push p) {
  zinc::wait_for_previous();
  using namespace flash_attn_batched_gqa_tile;
  if constexpr (mma != 0) {
    zinc::attend_batch<zinc::BatchMma<warps, 256>, warps>(q, k_cache, v_cache, page_table, out, sinks, p);
  } else {
    zinc::attend_batch<zinc::BatchAttention<warps, 2, keys>, warps>(q, k_cache, v_cache, page_table, out, sinks, p);
  }
}
