// Y = W X for a q6_K matrix and num_cols f32 vectors.
// Grid: x, persistent blocks that walk over tiles of 16 rows; y, eights of vectors. See dmmv_tiles.cuh. A tile has
// `split` warps of a block, or more where tiles are few. The block makes int8 planes of its vectors in shared memory,
// `steps` * 256 columns at most, over all vectors; longer, misaligned or extreme ones go through f32 arithmetic in
// stretches of `columns` columns.
#include "zinc/dmmv_q6k_batch.h"

#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q6_k_tiles.cuh"

namespace tile = dmmv_q6k_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q6k_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q6k_batch_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_batch<zinc::Q6KTiles, Shape, tile::rows, tile::columns>(weights, x, y, p, p.num_cols);
}
