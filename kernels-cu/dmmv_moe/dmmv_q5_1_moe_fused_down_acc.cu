// y = sum over slots of p_j W_e x_j for stacked q5_1 expert matrices; e = routing[j], p_j its weight.
// Grid: x, persistent blocks that walk over groups of warps * rows rows and go through all slots for them; each warp
// has `rows` rows, each lane every 32nd unit of 32 columns. The block stages x_j in stretches of `columns` columns.
//@ tile = { warps = 8, rows = 2, columns = 2048, blocks = 3 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q5_1_moe_fused_down_acc.h"

#include "zinc/dmmv_moe_down.cuh"
#include "zinc/quant/q5_1.cuh"

namespace tile = dmmv_q5_1_moe_fused_down_acc_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q5_1_moe_fused_down_acc(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                 dmmv_q5_1_moe_fused_down_acc_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_moe_down<zinc::Q5_1, Shape, tile::columns>(weights, x, y, zinc::RouterWeights{routing, p.n_used}, false,
                                                        p);
}
