// y = W x or y += W x for an MXFP4 matrix and one f32 vector.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if k is no larger.
//@ tile = { warps = 8, rows = 2, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_mxfp4.h"

#include "zinc/dmmv.cuh"
#include "zinc/quant/mxfp4.cuh"

namespace tile = dmmv_mxfp4_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_mxfp4(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_mxfp4_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv<zinc::Mxfp4, Shape, tile::columns>(weights, x, y, p);
}
