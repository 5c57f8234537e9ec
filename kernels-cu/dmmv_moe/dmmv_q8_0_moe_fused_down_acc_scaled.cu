// y = sum over slots of p_j s_e W_e x_j for stacked q8_0 expert matrices; e = routing[j], p_j its weight, s_e the
// expert factor.
// Grid: x over tiles of 16 rows, walked with the grid's stride; the steps of 256 columns of all slots are dealt out to
// the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of its part of the vectors, `steps` steps
// at most; more, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
//@ tile = { warps = 16, blocks = 1, steps = 8, head = 10240, rows = 1, columns = 2048 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, 16), blocks * sm_count)"]
//@ shared = "max(head, warps * (4864 + min(max(ceil_div(ceil_div(k, 256), warps), 2) * max(ceil_div(n_used * min(ceil_div(k, 256), warps), warps), 2), steps) * 1152))"
//@ overlap = true
//@ [arch.75]
//@ tile = { warps = 8, steps = 0 }
//@ [arch.80]
//@ tile = { steps = 4 }
//@ [arch.86]
//@ tile = { warps = 8, steps = 6 }
//@ [arch.90]
//@ tile = { warps = 16, steps = 8 }
//@ [arch.120]
//@ tile = { warps = 8, steps = 6 }
#include "zinc/dmmv_q8_0_moe_fused_down_acc_scaled.h"

#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_moe_fused_down_acc_scaled_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_moe_fused_down_acc_scaled(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                        const float* expert_scales, dmmv_q8_0_moe_fused_down_acc_scaled_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head>;
  zinc::dmmv_moe_down_tiles<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(
      weights, x, y, zinc::ScaledRouterWeights{routing, p.n_used, expert_scales}, false, p);
}
