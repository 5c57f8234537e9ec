// Inversion of token-to-expert routing by one block, in a fixed order: routes ascending in every expert's list, experts
// ascending in the list of work blocks.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// Routes that one work block of the grouped matrix kernels handles.
constexpr uint32_t routes_per_work_block = 8;
constexpr unsigned work_block_index_shift = 16;
constexpr uint32_t unused_work_block = 0xffffffffu;

// The routes of a batch: route r names an expert for token r / k, slot r % k.
struct Routes {
  const uint32_t* __restrict__ routing;
  uint32_t k;
  uint32_t routing_stride;
  uint32_t routing_token_base;
  uint32_t n_experts;

  // The expert of route r; n_experts for one that is to be dropped.
  ZINC_DEVICE uint32_t expert(uint64_t r) const {
    const uint64_t row = routing_token_base + r / k;
    return min(routing[row * routing_stride + r % k], n_experts);
  }
};

// Scans the routes first .. last - 1 in ascending order, a warp's width at a time, and gives each route the next place
// in its expert's list: visit(r, expert, place). next[expert] is the warp's own counter in shared memory; it ends up
// increased by the expert's routes. Dropped routes are not visited.
template <class Visit>
ZINC_DEVICE void deal_routes(const Routes& routes, uint64_t first, uint64_t last, uint32_t* next, Visit visit) {
  for (uint64_t at = first; at < last; at += warp_size) {
    const uint64_t r = at + lane_id();
    const uint32_t expert = r < last ? routes.expert(r) : routes.n_experts;
    const unsigned same = __match_any_sync(full_warp, expert);
    const unsigned lower = same & ((1u << lane_id()) - 1);
    const unsigned leader = __ffs(same) - 1;
    uint32_t place = 0;
    if (lane_id() == leader && expert < routes.n_experts) {
      place = next[expert];
      next[expert] = place + __popc(same);
    }
    place = __shfl_sync(full_warp, place, leader) + __popc(lower);
    if (expert < routes.n_experts) visit(r, expert, place);
    // The counter's next reader may be another lane.
    __syncwarp();
  }
}

}  // namespace zinc
