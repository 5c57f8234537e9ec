// Inversion of token-to-expert routing, in a fixed order: routes ascending in every expert's list, experts
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

  // The expert of slot `slot` of token `token`; n_experts for one that is to be dropped.
  ZINC_DEVICE uint32_t expert(uint64_t token, uint32_t slot) const {
    return min(routing[(routing_token_base + token) * routing_stride + slot], n_experts);
  }
};

// Visits the routes first .. last - 1 in ascending order, a warp's width at a time: visit(r, expert) in every lane,
// with expert n_experts behind the end and for dropped routes. The ids of several visits are fetched together, and
// tokens and slots are counted on instead of divided for.
template <class Visit>
ZINC_DEVICE void scan_routes(const Routes& routes, uint64_t first, uint64_t last, Visit visit) {
  constexpr unsigned ahead = 8;
  const uint32_t token_step = warp_size / routes.k;
  const uint32_t slot_step = warp_size % routes.k;
  const uint64_t start = first + lane_id();
  // A 64-bit division takes several times as long as one of 32 bits.
  uint64_t token = last >> 31 == 0 ? static_cast<uint32_t>(start) / routes.k : start / routes.k;
  uint32_t slot = static_cast<uint32_t>(start - token * routes.k);
  for (uint64_t at = first; at < last; at += ahead * warp_size) {
    uint32_t expert[ahead];
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) {
      expert[j] = at + j * warp_size + lane_id() < last ? routes.expert(token, slot) : routes.n_experts;
      token += token_step;
      slot += slot_step;
      if (slot >= routes.k) {
        slot -= routes.k;
        ++token;
      }
    }
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j) visit(at + j * warp_size + lane_id(), expert[j]);
  }
}

// A warp's place in the list of one expert, in shared memory.
struct ListEnd {
  uint32_t next;   // place of the warp's next route
  uint32_t lanes;  // lanes whose routes of the current visit name the expert; 0 between visits
};

// Gives each of the routes first .. last - 1 in ascending order that name one of the experts first_expert ..
// first_expert + experts - 1 the next place in its expert's list: visit(r, expert, place). end[expert - first_expert]
// is the warp's own; its `next` ends up increased by the expert's routes. The lanes find each other through a mask in
// shared memory: the instruction that matches lanes takes several times as long.
template <class Visit>
ZINC_DEVICE void deal_routes(const Routes& routes, uint64_t first, uint64_t last, uint32_t first_expert,
                             uint32_t experts, ListEnd* end, Visit visit) {
  scan_routes(routes, first, last, [=](uint64_t r, uint32_t expert) {
    const bool mine = expert < routes.n_experts && expert - first_expert < experts;
    if (!__any_sync(full_warp, mine)) return;
    ListEnd* const own = end + (mine ? expert - first_expert : 0);
    if (mine) atomicOr(&own->lanes, 1u << lane_id());
    __syncwarp();
    const ListEnd list = *own;
    __syncwarp();
    // The last lane of an expert prepares the next visit.
    if (mine && list.lanes >> lane_id() == 1) *own = {list.next + __popc(list.lanes), 0};
    __syncwarp();
    if (mine) visit(r, expert, list.next + __popc(list.lanes & ((1u << lane_id()) - 1)));
  });
}

}  // namespace zinc
