// y = W x or y += W x for a very tall q8_0 matrix and, despite the name, one f32 vector.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if k is no larger.
//@ tile = { warps = 8, rows = 4, columns = 4096, blocks = 2 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_batch.h"

#include "zinc/dmmv.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q8_0_batch_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv<zinc::Q8_0, Shape, tile::columns>(weights, x, y, p);
}
