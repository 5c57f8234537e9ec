// Inverts the routing of a batch: per-expert route lists, work blocks, two grid records. Grid: x over groups of
// `experts` experts, whose lists and work blocks the block writes. Warp w owns a contiguous share of all routes, which
// it scans twice: once to count the routes of every expert, once to place those of the block's experts after the ones
// of the warps before it. The counts that all blocks need are found by each of them.
#include "zinc/moe_route_pack.h"

#include "zinc/route_pack.cuh"

ZINC_KERNEL void __launch_bounds__(moe_route_pack_tile::threads, 1)
    moe_route_pack(const uint32_t* __restrict__ routing, uint32_t* __restrict__ counts, uint32_t* __restrict__ ids,
                   uint32_t* __restrict__ active_block_count, uint32_t* __restrict__ active_blocks,
                   uint32_t* __restrict__ dispatch_args, moe_route_pack_push p) {
  zinc::wait_for_previous();
  using namespace moe_route_pack_tile;
  constexpr unsigned warps = threads / zinc::warp_size;
  static_assert(warps == zinc::warp_size && experts <= warps, "a warp sums an expert's routes over the warps");
  static_assert(max_experts <= threads, "a thread owns an expert");
  ZINC_SHARED(uint32_t[max_experts], found);
  ZINC_SHARED(zinc::ListEnd[warps][experts], ends);
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);

  const zinc::Routes routes = {routing, p.k, p.routing_stride, p.routing_token_base, p.n_experts};
  const uint64_t total = uint64_t{p.n_tokens} * p.k;
  const uint64_t share = (total / warps / zinc::warp_size + 1) * zinc::warp_size;
  const uint64_t first = min(zinc::warp_id() * share, total);
  const uint64_t last = min(first + share, total);
  const uint32_t first_expert = blockIdx.x * experts;
  zinc::ListEnd* const own = ends[zinc::warp_id()];

  if (threadIdx.x < max_experts) found[threadIdx.x] = 0;
  if (zinc::lane_id() < experts) own[zinc::lane_id()] = {0, 0};
  __syncthreads();
  uint32_t* const counters = found;
  zinc::scan_routes(routes, first, last, [=](uint64_t, uint32_t expert) {
    if (expert >= routes.n_experts) return;
    atomicAdd(&counters[expert], 1u);
    if (expert - first_expert < experts) atomicAdd(&own[expert - first_expert].next, 1u);
  });
  __syncthreads();

  if (zinc::warp_id() < experts) {
    uint32_t& next = ends[zinc::lane_id()][zinc::warp_id()].next;
    next = zinc::warp_prefix_sum(next) - next;
  }
  const uint32_t capacity = p.ids_stride;
  const uint32_t stored = threadIdx.x < max_experts ? min(found[threadIdx.x], capacity) : 0;
  const uint32_t blocks = (stored + zinc::routes_per_work_block - 1) / zinc::routes_per_work_block;
  const zinc::PrefixSum work = zinc::block_prefix_sum(blocks, partial);
  zinc::deal_routes(routes, first, last, first_expert, experts, own, [=](uint64_t r, uint32_t e, uint32_t place) {
    if (place < capacity) ids[uint64_t{e} * capacity + place] = static_cast<uint32_t>(r);
  });

  if (threadIdx.x - first_expert < experts && threadIdx.x < p.n_experts) {
    counts[threadIdx.x] = stored;
    for (uint32_t b = 0; b < blocks; ++b) {
      active_blocks[work.before + b] = threadIdx.x | b << zinc::work_block_index_shift;
    }
  }
  const uint64_t unused = uint64_t{blockIdx.x} * threads + threadIdx.x;
  for (uint64_t i = work.total + unused; i < total; i += uint64_t{gridDim.x} * threads) {
    active_blocks[i] = zinc::unused_work_block;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *active_block_count = work.total;
    dispatch_args[0] = p.gate_up_workgroups_x;
    dispatch_args[3] = p.down_workgroups_x;
    dispatch_args[1] = dispatch_args[4] = work.total;
    dispatch_args[2] = dispatch_args[5] = 1;
  }
}
