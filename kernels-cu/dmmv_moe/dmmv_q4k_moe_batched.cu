// For every (token, slot) pair y = W_e x_token for stacked q4_K expert matrices; e from a dense table of ids.
// Grid: y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the steps of
// 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of
// its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
#include "zinc/dmmv_q4k_moe_batched.h"

#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_moe_batched_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_moe_batched(const uint8_t* weights, const float* x, float* y, const uint32_t* routing,
                         dmmv_q4k_moe_batched_push p) {
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q4KTiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe_batched<Slots>(weights, x, y, routing, p);
}
