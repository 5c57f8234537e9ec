// y = W x or y += W x for a very tall q6_K matrix: as dmmv_q6k with more rows per warp.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if k is no larger.
//@ tile = { warps = 8, rows = 4, columns = 4096, blocks = 2 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q6k_wide.h"

#include "zinc/dmmv.cuh"
#include "zinc/quant/q6_k.cuh"

namespace tile = dmmv_q6k_wide_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q6k_wide(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q6k_wide_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv<zinc::Q6K, Shape, tile::columns>(weights, x, y, p);
}
