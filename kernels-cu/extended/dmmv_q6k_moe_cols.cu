// Per listed route q y_q = W_e x_t or += for stacked q6_K expert matrices; t = q / x_route_divisor.
// Grid: y over work-list entries of up to eight routes of one expert; x, persistent blocks that walk over groups of
// warps * rows rows; each warp has `rows` of them, each lane every 32nd unit of 32 columns. The block stages the
// vectors of the routes in stretches of `columns` columns in shared memory.
//@ tile = { warps = 8, rows = 2, columns = 1024, blocks = 2, vectors = 8 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)", "min(n_blocks, 65535)"]
#include "zinc/dmmv_q6k_moe_cols.h"

#include "zinc/dmmv_moe_cols.cuh"
#include "zinc/quant/q6_k.cuh"

namespace tile = dmmv_q6k_moe_cols_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q6k_moe_cols(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* counts,
                      const uint32_t* packed_ids, const uint32_t* active_blocks, dmmv_q6k_moe_cols_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows, tile::vectors>;
  zinc::dmmv_moe_cols<zinc::Q6K, Shape, tile::columns>(weights, x, y, counts, packed_ids, active_blocks, p);
}
