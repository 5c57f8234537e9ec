// moe_weighted_acc for a batch of tokens. Grid: x over (token, tile of threads * per_thread elements); a thread owns
// per_thread elements of its block's tile and loops over the token's experts.
#include "zinc/moe_weighted_acc_batch.h"

#include "zinc/weighted_sum.cuh"

ZINC_KERNEL void __launch_bounds__(moe_weighted_acc_batch_tile::threads)
    moe_weighted_acc_batch(float* accum, const float* src, const uint32_t* routing, moe_weighted_acc_batch_push p) {
  zinc::wait_for_previous();
  using namespace moe_weighted_acc_batch_tile;
  const zinc::RowTile at = zinc::row_tile<threads * per_thread>(p.hidden_dim);
  const uint64_t routing_row = (uint64_t{p.routing_token_base} + at.row) * p.routing_stride;
  const uint64_t accum_row = (uint64_t{p.accum_token_base} + at.row) * p.hidden_dim;
  const uint64_t first_route = uint64_t{at.row} * p.n_used;
  zinc::accumulate_experts<threads, per_thread>(at.tile, accum + accum_row, src + first_route * p.hidden_dim,
                                                p.hidden_dim, routing + routing_row + p.n_used, p.hidden_dim, p.n_used);
}
