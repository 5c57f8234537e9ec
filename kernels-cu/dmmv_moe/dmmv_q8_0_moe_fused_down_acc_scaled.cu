// y = sum over slots of p_j s_e W_e x_j for stacked q8_0 expert matrices; e = routing[j], p_j its weight, s_e the
// expert factor. Grid: x, persistent blocks that walk over groups of warps * rows rows and go through all slots for
// them; each warp has `rows` rows, each lane every 32nd unit of 32 columns. The block stages x_j in stretches of
// `columns` columns.
//@ tile = { warps = 8, rows = 2, columns = 2048, blocks = 3 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_moe_fused_down_acc_scaled.h"

#include "zinc/dmmv_moe_down.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_moe_fused_down_acc_scaled_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_moe_fused_down_acc_scaled(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                        const float* expert_scales, dmmv_q8_0_moe_fused_down_acc_scaled_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_moe_down<zinc::Q8_0, Shape, tile::columns>(
      weights, x, y, zinc::ScaledRouterWeights{routing, p.n_used, expert_scales}, false, p);
}
