// y0 = W0 x and y1 = W1 x for two q8_0 matrices with equally long rows and one f32 vector.
// Grid: x, persistent blocks that walk over tiles of 16 rows of one of the matrices. See dmmv_tiles.cuh. A tile has
// `split` warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` *
// 256 columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q8_0_fused_pair.h"

#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_fused_pair_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0, uint8_t* y1,
                         dmmv_q8_0_fused_pair_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_pair<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(weights0, weights1, x, y0, y1, p);
}
