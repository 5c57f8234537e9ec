// Per routing slot G_e x_j and U_e x_j for stacked q4_K gate and up matrices.
// Grid: y over slots; x, persistent blocks that walk over groups of warps * rows rows of the slot's expert; each warp
// has `rows` of them in both matrices, each lane every 32nd unit of 32 columns. The block stages x_j in stretches of
// `columns` columns in shared memory.
//@ tile = { warps = 8, rows = 1, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)", "min(n_slots, 65535)"]
#include "zinc/dmmv_q4k_fused_gate_up_moe.h"

#include "zinc/dmmv_moe.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = dmmv_q4k_fused_gate_up_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_fused_gate_up_moe(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y_gate,
                               uint8_t* y_up, const uint32_t* routing, dmmv_q4k_fused_gate_up_moe_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_moe_gate_up<zinc::Q4K, Shape, tile::columns>(w_gate, w_up, x, y_gate, y_up, routing, p);
}
