// Per routing slot y_j = W_e x_j for stacked q5_1 expert matrices; e = routing[j], x_j shared or one per slot.
// Of at most `few` weights in all slots: grid y over slots, x over row groups of `few_rows`; see dmmv_few.cuh.
// Else: grid y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the
// steps of 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8
// planes of its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic
// in stretches of `columns` columns.
#include "zinc/dmmv_q5_1_moe.h"

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q5_1_piece.cuh"
#include "zinc/quant/q5_1_tiles.cuh"

namespace tile = dmmv_q5_1_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q5_1_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing, dmmv_q5_1_moe_push p) {
  if constexpr (tile::few > 0) {
    const uint32_t misfit = p.expert_stride % 16 + p.k % 256 + p.x_offset % 16 + p.x_expert_stride % 4;
    if (zinc::is_few_staged(p.n_slots, p.m, p.k, p.k, misfit, tile::few)) {
      using Few = zinc::FewExperts<zinc::FewShape<zinc::Q5_1Piece, tile::few_rows>>;
      zinc::dmmv_moe<Few>(weights, x, y, routing, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q5_1Tiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe<Slots>(weights, x, y, routing, p);
}
