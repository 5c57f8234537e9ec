// Per routing slot y_j = W_e x_j for stacked MXFP4 expert matrices; e = routing[j], x_j shared or one per slot.
// Grid: y over slots; x, persistent blocks that walk over groups of warps * rows rows of the slot's expert; each warp
// has `rows` of them, each lane every 32nd unit of 32 columns. The block stages x_j in stretches of `columns` columns
// in shared memory.
//@ tile = { warps = 8, rows = 2, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)", "min(n_slots, 65535)"]
#include "zinc/dmmv_mxfp4_moe.h"

#include "zinc/dmmv_moe.cuh"
#include "zinc/quant/mxfp4.cuh"

namespace tile = dmmv_mxfp4_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_mxfp4_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                   dmmv_mxfp4_moe_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_moe<zinc::FloatSlots<zinc::Mxfp4, Shape, tile::columns>>(weights, x, y, routing, p);
}
