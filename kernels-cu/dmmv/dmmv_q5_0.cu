// y = W x or y += W x for a q5_0 matrix and one f32 vector.
// Of at most `few` weights and `copied` columns, from compute capability 9.0 on: blocks of 8 warps with up to 64 rows,
// so many that all multiprocessors have one; see dmmv_copied.cuh. Else: grid x, persistent blocks that walk over tiles
// of 16 rows. See dmmv_tiles.cuh. A tile has `split` warps of a block, or more where tiles are few. The block makes
// int8 planes of x in shared memory, `steps` * 256 columns at most; longer, misaligned or extreme ones go through f32
// arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q5_0.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q5_0_copied.cuh"
#include "zinc/quant/q5_0_tiles.cuh"

namespace tile = dmmv_q5_0_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q5_0(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q5_0_push p) {
  if constexpr (tile::copied > 0) {
    if (zinc::is_copied<zinc::CopiedQ5_0>(p.m, p.k, p.a_offset, tile::copied, 0, tile::few)) {
      zinc::dmmv_copied<zinc::CopiedQ5_0>(weights, x, y, p);
      return;
    }
  }
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head, tile::cached != 0>;
  zinc::prefetch_tiles<zinc::Q5_0Tiles, Shape>(weights + p.a_offset, p.m, p.k, blockIdx.x, gridDim.x);
  zinc::wait_for_previous();
  zinc::dmmv_tiles<zinc::Q5_0Tiles, Shape, tile::rows, tile::columns>(weights, x, y, p);
}
