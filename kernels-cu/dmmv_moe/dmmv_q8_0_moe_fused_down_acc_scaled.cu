// y = sum over slots of p_j s_e W_e x_j for stacked q8_0 expert matrices; e = routing[j], p_j its weight, s_e the
// expert factor.
// Of at most `few` weights in all slots, and 2048 to `copied` columns: grid x over up to 64 rows, so many that all
// multiprocessors have a block; see dmmv_copied.cuh.
// Else: grid x over tiles of 16 rows, walked with the grid's stride; the steps of 256 columns of all slots are dealt
// out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of its part of the vectors, `steps`
// steps at most; more, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q8_0_moe_fused_down_acc_scaled.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q8_0_copied.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_moe_fused_down_acc_scaled_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_moe_fused_down_acc_scaled(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                        const float* expert_scales, dmmv_q8_0_moe_fused_down_acc_scaled_push p) {
  if constexpr (tile::copied > 0) {
    const uint32_t misfit = p.expert_stride % 16 + p.x_offset % 16 + p.x_expert_stride % 4;
    if (zinc::is_copied_set<zinc::CopiedQ8_0>(p.n_used, p.m, p.k, p.n_used * p.k, misfit, tile::copied, tile::few)) {
      zinc::moe_down_copied<zinc::CopiedQ8_0>(weights, x, y,
                                              zinc::ScaledRouterWeights{routing, p.n_used, expert_scales}, false, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head>;
  zinc::dmmv_moe_down_tiles<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(
      weights, x, y, zinc::ScaledRouterWeights{routing, p.n_used, expert_scales}, false, p);
}
