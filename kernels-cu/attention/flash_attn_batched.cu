// Causal attention of consecutive query tokens over the paged KV cache. Grid: x over (tile of 8 * warps queries, query
// head), heads fastest; the block owns one head of its queries, a warp eight of them. Heads of 64, 128, 256 and 512
// elements are multiplied on the tensor cores where shared memory holds the queries, others with plain instructions;
// for those, tiles are half as long for heads of more than 256 elements.
//@ tile = { warps = 4, keys = 32, max_mma_dim = 512 }
//@ block = ["32 * warps"]
//@ grid = ["ceil_div(n_queries, 8 * warps) * n_heads"]
//@ shared = "max(max(keys * (2 * min(2, ceil_div(head_dim, 128)) * 512 + 16 + 32 * warps), keys / 2 * (2 * ceil_div(head_dim, 128) * 512 + 16 + 32 * warps)), 128 * min(head_dim, max_mma_dim) + 2048 + warps * (64 * min(head_dim, max_mma_dim) + 1536))"
//@ overlap = true
//@ [arch.75]
//@ tile = { warps = 4, keys = 16, max_mma_dim = 0 }
//@ [arch.80]
//@ tile = { warps = 4, keys = 32, max_mma_dim = 128 }
//@ [arch.90]
//@ tile = { warps = 4, keys = 32, max_mma_dim = 512 }
//@ [arch.120]
//@ tile = { warps = 4, keys = 32, max_mma_dim = 128 }
#include "zinc/flash_attn_batched.h"

#include "zinc/attention_batch.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_batched_tile::warps)
    flash_attn_batched(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                       float* out, const float* sinks, flash_attn_batched_push p) {
  zinc::wait_for_previous();
  using namespace flash_attn_batched_tile;
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
