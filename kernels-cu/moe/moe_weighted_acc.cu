// accum += the routing-weighted sum of the selected experts' outputs. Grid: x over tiles of threads * per_thread
// elements; a thread owns per_thread elements of its block's tile and loops over the experts.
#include "zinc/moe_weighted_acc.h"

#include "zinc/weighted_sum.cuh"

ZINC_KERNEL void __launch_bounds__(moe_weighted_acc_tile::threads)
    moe_weighted_acc(float* accum, const float* src, const uint32_t* routing, moe_weighted_acc_push p) {
  zinc::wait_for_previous();
  using namespace moe_weighted_acc_tile;
  zinc::accumulate_experts<threads, per_thread>(blockIdx.x, accum, src, p.src_stride, routing + p.n_used, p.n,
                                                p.n_used);
}
