// y0 = W0 x and y1 = W1 x for two q8_0 matrices and one f32 vector.
// Grid: x, persistent blocks that walk over groups of warps * rows rows, those of W0 first; each warp has `rows`
// of them, each lane every 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time,
// or once if k is no larger.
//@ tile = { warps = 8, rows = 2, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m0, warps * rows) + ceil_div(m1, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_fused_pair.h"

#include "zinc/dmmv_fused.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_fused_pair_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0, uint8_t* y1,
                         dmmv_q8_0_fused_pair_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_pair<zinc::Q8_0, Shape, tile::columns>(weights0, weights1, x, y0, y1, p);
}
