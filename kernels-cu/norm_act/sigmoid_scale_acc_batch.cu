// accum += sigmoid(gate) * src with one gate per token. Grid: x over (token, tile of threads * per_thread elements); a
// thread owns per_thread elements of its block's tile, `threads` apart, and evaluates the token's sigmoid itself.
#include "zinc/sigmoid_scale_acc_batch.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(sigmoid_scale_acc_batch_tile::threads)
    sigmoid_scale_acc_batch(float* __restrict__ accum, const float* __restrict__ src, const float* __restrict__ gate,
                            sigmoid_scale_acc_batch_push p) {
  zinc::wait_for_previous();
  using namespace sigmoid_scale_acc_batch_tile;
  const zinc::RowTile at = zinc::row_tile<threads * per_thread>(p.hidden_dim);
  const float factor = zinc::sigmoid(gate[at.row]);
  const float* const from = src + uint64_t{at.row} * p.hidden_dim;
  float* const to = accum + (uint64_t{p.accum_token_base} + at.row) * p.hidden_dim;
  zinc::map_tile_of<threads, per_thread>(
      at.tile, to, p.hidden_dim, [=](float a, float s) { return fmaf(factor, s, a); }, to, from);
}
