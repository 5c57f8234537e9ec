// y = W x or y += W x for a q8_0 matrix and one f32 vector, or Y = W X for a batch of acc_mode >= 2 vectors.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if k is no larger.
// A batch is worked off `vectors` at a time, with stretches of batch_columns.
//@ tile = { warps = 8, rows = 2, columns = 4096, vectors = 4, batch_columns = 1024, blocks = 3 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_kpar_batch.h"

#include "zinc/dmmv.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_kpar_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_kpar_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q8_0_kpar_batch_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  using BatchShape = zinc::RowShape<tile::warps, tile::rows, tile::vectors>;
  zinc::dmmv_or_batch<zinc::Q8_0, Shape, tile::columns, BatchShape, tile::batch_columns>(weights, x, y, p);
}
