// Per routing slot y_j = W_e x_j for stacked MXFP4 expert matrices; e = routing[j], x_j shared or one per slot.
// Grid: y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the steps of
// 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of
// its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
//@ tile = { warps = 8, blocks = 2, steps = 8, head = 10240, sets = 1, rows = 2, columns = 2048 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, 16 * sets), ceil_div(blocks * sm_count, n_slots))", "min(n_slots, 65535)"]
//@ shared = "max(head, warps * (3072 + min(max(ceil_div(ceil_div(k, 256), warps), 2), steps) * 1152))"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0 }
//@ [arch.80]
//@ tile = { steps = 8 }
#include "zinc/dmmv_mxfp4_moe.h"

#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/mxfp4_tiles.cuh"

namespace tile = dmmv_mxfp4_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_mxfp4_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                   dmmv_mxfp4_moe_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Mxfp4Tiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe<Slots>(weights, x, y, routing, p);
}
