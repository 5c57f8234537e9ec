// y = sum over slots of p_j W_e x_j for stacked q5_1 expert matrices; e = routing[j], p_j its weight.
// Of at most `few` weights in all slots: grid x over row groups of `few_rows`; see dmmv_few.cuh.
// Else: grid x over tiles of 16 rows, walked with the grid's stride; the steps of 256 columns of all slots are dealt
// out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of its part of the vectors, `steps`
// steps at most; more, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q5_1_moe_fused_down_acc.h"

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q5_1_piece.cuh"
#include "zinc/quant/q5_1_tiles.cuh"

namespace tile = dmmv_q5_1_moe_fused_down_acc_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q5_1_moe_fused_down_acc(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                 dmmv_q5_1_moe_fused_down_acc_push p) {
  if constexpr (tile::few > 0) {
    const uint32_t misfit = p.expert_stride % 16 + p.k % 256 + p.x_offset % 16 + p.x_expert_stride % 4;
    if (zinc::is_few_staged(p.n_used, p.m, p.k, p.n_used * p.k, misfit, tile::few)) {
      using Few = zinc::FewShape<zinc::Q5_1Piece, tile::few_rows>;
      zinc::moe_down_few<Few>(weights, x, y, zinc::RouterWeights{routing, p.n_used}, false, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head>;
  zinc::dmmv_moe_down_tiles<zinc::Q5_1Tiles, Shape, tile::rows, tile::columns>(
      weights, x, y, zinc::RouterWeights{routing, p.n_used}, false, p);
}
