// Inverts the routing of a batch: per-expert route lists, work blocks, two grid records. Grid: one block. Warp w owns a
// contiguous share of the routes, which it scans twice: once to count its routes per expert, once to place them after
// those of the warps before it. In between, `groups` threads own an expert, each a run of the warps; at the end thread
// e owns expert e.
//@ tile = { threads = 1024, max_experts = 256 }
//@ block = ["threads"]
//@ grid = ["1"]
//@ overlap = true
#include "zinc/moe_route_pack.h"

#include "zinc/route_pack.cuh"

ZINC_KERNEL void __launch_bounds__(moe_route_pack_tile::threads)
    moe_route_pack(const uint32_t* __restrict__ routing, uint32_t* __restrict__ counts, uint32_t* __restrict__ ids,
                   uint32_t* __restrict__ active_block_count, uint32_t* __restrict__ active_blocks,
                   uint32_t* __restrict__ dispatch_args, moe_route_pack_push p) {
  zinc::wait_for_previous();
  constexpr unsigned threads = moe_route_pack_tile::threads;
  constexpr unsigned max_experts = moe_route_pack_tile::max_experts;
  constexpr unsigned warps = threads / zinc::warp_size;
  constexpr unsigned groups = threads / max_experts;
  constexpr unsigned group_warps = warps / groups;
  static_assert(groups * max_experts == threads && groups * group_warps == warps, "every thread owns a run of warps");
  // Routes of each expert in each warp's share, then the place of the share's next route in the expert's list.
  ZINC_SHARED(uint32_t[warps][max_experts], next);
  ZINC_SHARED(uint32_t[groups][max_experts], group_routes);
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);

  const zinc::Routes routes = {routing, p.k, p.routing_stride, p.routing_token_base, p.n_experts};
  const uint64_t total = uint64_t{p.n_tokens} * p.k;
  const uint64_t share = (total / warps / zinc::warp_size + 1) * zinc::warp_size;
  const uint64_t first = min(zinc::warp_id() * share, total);
  const uint64_t last = min(first + share, total);
  uint32_t* const own = next[zinc::warp_id()];

  for (unsigned e = zinc::lane_id(); e < max_experts; e += zinc::warp_size) own[e] = 0;
  __syncwarp();
  zinc::count_routes(routes, first, last, own);
  __syncthreads();

  const unsigned expert = threadIdx.x % max_experts;
  const unsigned group = threadIdx.x / max_experts;
  uint32_t in_share[group_warps];
  uint32_t found = 0;
#pragma unroll
  for (unsigned w = 0; w < group_warps; ++w) in_share[w] = next[group * group_warps + w][expert];
#pragma unroll
  for (unsigned w = 0; w < group_warps; ++w) found += in_share[w];
  group_routes[group][expert] = found;
  __syncthreads();
  uint32_t place = 0;
  uint32_t routes_of_expert = 0;
#pragma unroll
  for (unsigned g = 0; g < groups; ++g) {
    if (g < group) place += group_routes[g][expert];
    routes_of_expert += group_routes[g][expert];
  }
#pragma unroll
  for (unsigned w = 0; w < group_warps; ++w) {
    next[group * group_warps + w][expert] = place;
    place += in_share[w];
  }
  __syncthreads();
  const uint32_t capacity = p.ids_stride;
  zinc::deal_routes(routes, first, last, own, [=](uint64_t r, uint32_t e, uint32_t at) {
    if (at < capacity) ids[uint64_t{e} * capacity + at] = static_cast<uint32_t>(r);
  });

  const uint32_t stored = group == 0 ? min(routes_of_expert, capacity) : 0;
  const uint32_t blocks = (stored + zinc::routes_per_work_block - 1) / zinc::routes_per_work_block;
  const zinc::PrefixSum work = zinc::block_prefix_sum(blocks, partial);
  if (threadIdx.x < p.n_experts) counts[threadIdx.x] = stored;
  for (uint32_t b = 0; b < blocks; ++b) {
    active_blocks[work.before + b] = threadIdx.x | b << zinc::work_block_index_shift;
  }
  for (uint64_t i = work.total + threadIdx.x; i < total; i += threads) active_blocks[i] = zinc::unused_work_block;
  if (threadIdx.x == 0) {
    *active_block_count = work.total;
    dispatch_args[0] = p.gate_up_workgroups_x;
    dispatch_args[3] = p.down_workgroups_x;
    dispatch_args[1] = dispatch_args[4] = work.total;
    dispatch_args[2] = dispatch_args[5] = 1;
  }
}
