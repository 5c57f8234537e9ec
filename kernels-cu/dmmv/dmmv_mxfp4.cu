// y = W x or y += W x for an MXFP4 matrix and one f32 vector.
// Grid: x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_mxfp4.h"

#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/mxfp4_tiles.cuh"

namespace tile = dmmv_mxfp4_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_mxfp4(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_mxfp4_push p) {
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head, tile::cached != 0,
                                false, tile::ring != 0>;
  zinc::prefetch_tiles<zinc::Mxfp4Tiles, Shape>(weights + p.a_offset, p.m, p.k, blockIdx.x, gridDim.x);
  zinc::wait_for_previous();
  zinc::dmmv_tiles<zinc::Mxfp4Tiles, Shape, tile::rows, tile::columns>(weights, x, y, p);
}
