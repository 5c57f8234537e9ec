// y = W x or y += W x for a q8_0 matrix and one f32 vector, or Y = W X for a batch of acc_mode >= 2 vectors, in f32.
// Grid: x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q8_0_kpar_batch.h"

#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_kpar_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_kpar_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q8_0_kpar_batch_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  using BatchShape = zinc::RowShape<tile::warps, tile::rows, tile::vectors>;
  zinc::dmmv_tiles_or_batch<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns, BatchShape, tile::batch_columns>(
      weights, x, y, p);
}
