// For every (token, slot) pair y = W_e x_token for stacked q4_K expert matrices; e from a dense table of ids.
// Grid: y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the steps of
// 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of
// its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
//@ tile = { warps = 8, blocks = 2, steps = 8, head = 10240, sets = 2, rows = 2, columns = 2048 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, 16 * sets), ceil_div(3 * blocks * sm_count, n_tokens * n_experts_used))", "min(n_tokens * n_experts_used, 65535)"]
//@ shared = "max(head, warps * (384 + min(max(ceil_div(ceil_div(k, 256), warps), 2), steps) * 1152))"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0 }
//@ [arch.80]
//@ tile = { steps = 8 }
//@ [arch.100]
//@ tile = { blocks = 1, steps = 8 }
//@ [arch.120]
//@ tile = { blocks = 1, steps = 8 }
#include "zinc/dmmv_q4k_moe_batched.h"

#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_moe_batched_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_moe_batched(const uint8_t* weights, const float* x, float* y, const uint32_t* routing,
                         dmmv_q4k_moe_batched_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q4KTiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe_batched<Slots>(weights, x, y, routing, p);
}
