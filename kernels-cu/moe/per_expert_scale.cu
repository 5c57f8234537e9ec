// Multiplies each selected expert's output by that expert's scalar. Grid: x over (slot, tile of threads * per_thread
// elements); a thread owns per_thread elements of its block's tile, `threads` apart.
#include "zinc/per_expert_scale.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(per_expert_scale_tile::threads)
    per_expert_scale(float* __restrict__ down, const float* __restrict__ scales, const uint32_t* __restrict__ routing,
                     per_expert_scale_push p) {
  zinc::wait_for_previous();
  using namespace per_expert_scale_tile;
  const zinc::RowTile at = zinc::row_tile<threads * per_thread>(p.hidden_dim);
  const float scale = scales[routing[at.row]];
  float* const row = down + uint64_t{at.row} * p.hidden_dim;
  zinc::map_tile_of<threads, per_thread>(at.tile, row, p.hidden_dim, [=](float x) { return x * scale; }, row);
}
