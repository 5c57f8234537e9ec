// Y = W X for a q4_K matrix and num_cols f32 vectors.
// Grid: x, persistent blocks that walk over tiles of 16 rows; y, eights of vectors. See dmmv_tiles.cuh. A tile has
// `split` warps of a block, or more where tiles are few. The block brings its vectors as halves to shared memory,
// `steps` * 256 columns at most, over all vectors; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
//@ tile = { warps = 8, split = 2, stages = 2, blocks = 1, steps = 184, head = 20480, rows = 1, columns = 512 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, 16), blocks * sm_count)", "ceil_div(num_cols, 8)"]
//@ shared = "head + min(ceil_div(k, 256) * min(max(num_cols, 2) * 2, 8), steps) * 1072"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0 }
//@ [arch.80]
//@ tile = { steps = 128 }
//@ [arch.86]
//@ tile = { steps = 72 }
//@ [arch.90]
//@ tile = { warps = 16, split = 4, steps = 184 }
//@ [arch.100]
//@ tile = { warps = 8, split = 2, stages = 2, steps = 184 }
//@ [arch.120]
//@ tile = { warps = 8, split = 2, stages = 2, steps = 72 }
#include "zinc/dmmv_q4k_batch.h"

#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q4k_batch_push p) {
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::prefetch_tiles<zinc::Q4KHalves, Shape>(weights + p.a_offset, p.m, p.k, blockIdx.x, gridDim.x);
  zinc::wait_for_previous();
  zinc::dmmv_tiles_batch<zinc::Q4KHalves, Shape, tile::rows, tile::columns>(weights, x, y, p, p.num_cols);
}
