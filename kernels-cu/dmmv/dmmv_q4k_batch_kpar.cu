// Y = W X for a q4_K matrix and num_cols f32 vectors.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages the vectors, `vectors` at a time, in shared memory, `columns` columns of
// each at a time.
//@ tile = { warps = 8, rows = 2, columns = 1024, blocks = 2, vectors = 8 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q4k_batch_kpar.h"

#include "zinc/dmmv.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = dmmv_q4k_batch_kpar_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_batch_kpar(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q4k_batch_kpar_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows, tile::vectors>;
  zinc::dmmv_batch<zinc::Q4K, Shape, tile::columns>(weights, x, y, p, p.num_cols);
}
