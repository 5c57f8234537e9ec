// Per routing slot y_j = W_e x_j for stacked MXFP4 expert matrices; e = routing[j], x_j shared or one per slot.
// Grid: y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the steps of
// 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of
// its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
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
