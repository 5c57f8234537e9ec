// Copies the K and V rows of consecutive tokens into their paged cache slots. Grid: x over (token, tile of threads *
// per_thread elements); a thread owns per_thread elements of its block's tile, `threads` apart, of both rows.
#include "zinc/kv_cache_write_batched.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(kv_cache_write_batched_tile::threads)
    kv_cache_write_batched(const uint32_t* __restrict__ k_src, uint32_t* __restrict__ k_dst,
                           const uint32_t* __restrict__ v_src, uint32_t* __restrict__ v_dst,
                           const uint32_t* __restrict__ page_table, kv_cache_write_batched_push p) {
  zinc::wait_for_previous();
  using namespace kv_cache_write_batched_tile;
  const zinc::RowTile at = zinc::row_tile<threads * per_thread>(p.kv_dim);
  const uint64_t logical = uint64_t{p.base_token} + at.row;
  const uint64_t slot = uint64_t{page_table[logical / p.page_size]} * p.page_size + logical % p.page_size;
  const uint64_t from = uint64_t{at.row} * p.kv_dim;
  const uint64_t to = slot * p.kv_dim;
  zinc::copy_two<threads, per_thread>(at.tile, k_dst + to, k_src + from, v_dst + to, v_src + from, p.kv_dim);
}
