// Inverts the routing of a batch: per-expert route lists, work blocks, two grid records. Grid: one block. Warp w owns a
// contiguous share of the routes, which it scans twice: once to count its routes per expert, once to place them after
// those of the warps before it. In between and at the end thread e owns expert e.
//@ tile = { threads = 256 }
//@ block = ["threads"]
//@ grid = ["1"]
#include "zinc/moe_route_pack.h"

#include "zinc/route_pack.cuh"

ZINC_KERNEL void __launch_bounds__(moe_route_pack_tile::threads)
    moe_route_pack(const uint32_t* routing, uint32_t* __restrict__ counts, uint32_t* __restrict__ ids,
                   uint32_t* __restrict__ active_block_count, uint32_t* __restrict__ active_blocks,
                   uint32_t* __restrict__ dispatch_args, moe_route_pack_push p) {
  constexpr unsigned threads = moe_route_pack_tile::threads;
  constexpr unsigned warps = threads / zinc::warp_size;
  // Routes of each expert in each warp's share, then the place of the share's next route in the expert's list.
  ZINC_SHARED(uint32_t[warps][threads], next);
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);

  const zinc::Routes routes = {routing, p.k, p.routing_stride, p.routing_token_base, p.n_experts};
  const uint64_t total = uint64_t{p.n_tokens} * p.k;
  const uint64_t share = (total / warps / zinc::warp_size + 1) * zinc::warp_size;
  const uint64_t first = min(zinc::warp_id() * share, total);
  const uint64_t last = min(first + share, total);
  uint32_t* const own = next[zinc::warp_id()];

  for (unsigned w = 0; w < warps; ++w) next[w][threadIdx.x] = 0;
  __syncthreads();
  zinc::deal_routes(routes, first, last, own, [](uint64_t, uint32_t, uint32_t) {});
  __syncthreads();

  uint32_t found = 0;
  for (unsigned w = 0; w < warps; ++w) {
    const uint32_t in_share = next[w][threadIdx.x];
    next[w][threadIdx.x] = found;
    found += in_share;
  }
  __syncthreads();
  const uint32_t capacity = p.ids_stride;
  zinc::deal_routes(routes, first, last, own, [=](uint64_t r, uint32_t expert, uint32_t place) {
    if (place < capacity) ids[uint64_t{expert} * capacity + place] = static_cast<uint32_t>(r);
  });

  const uint32_t stored = min(found, capacity);
  const uint32_t blocks = (stored + zinc::routes_per_work_block - 1) / zinc::routes_per_work_block;
  const zinc::PrefixSum place = zinc::block_prefix_sum(blocks, partial);
  if (threadIdx.x < p.n_experts) counts[threadIdx.x] = stored;
  for (uint32_t b = 0; b < blocks; ++b) {
    active_blocks[place.before + b] = threadIdx.x | b << zinc::work_block_index_shift;
  }
  for (uint64_t i = place.total + threadIdx.x; i < total; i += threads) active_blocks[i] = zinc::unused_work_block;
  if (threadIdx.x == 0) {
    *active_block_count = place.total;
    dispatch_args[0] = p.gate_up_workgroups_x;
    dispatch_args[3] = p.down_workgroups_x;
    dispatch_args[1] = dispatch_args[4] = place.total;
    dispatch_args[2] = dispatch_args[5] = 1;
  }
}
