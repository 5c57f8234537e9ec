// Copies one token's K and V into their cache slot. Grid: x over tiles of threads * per_thread elements; a thread owns
// per_thread elements of its block's tile, `threads` apart, of both vectors.
#include "zinc/kv_cache_write.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(kv_cache_write_tile::threads)
    kv_cache_write(const uint32_t* __restrict__ k_src, uint32_t* __restrict__ k_dst, const uint32_t* __restrict__ v_src,
                   uint32_t* __restrict__ v_dst, kv_cache_write_push p) {
  zinc::wait_for_previous();
  using namespace kv_cache_write_tile;
  zinc::copy_two<threads, per_thread>(blockIdx.x, k_dst + p.dst_offset, k_src, v_dst + p.dst_offset, v_src, p.kv_dim);
}
