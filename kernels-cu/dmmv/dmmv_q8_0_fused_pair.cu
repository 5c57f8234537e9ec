// y0 = W0 x and y1 = W1 x for two q8_0 matrices with equally long rows and one f32 vector.
// Of up to `tiles` tiles of 16 rows for each multiprocessor and `copied` columns, from compute capability 9.0 on:
// blocks of 8 warps with the rows of one matrix, as few tiles as all multiprocessors have at most; see dmmv_copied.cuh.
// Else: grid x, persistent blocks that walk over tiles of 16 rows of one of the matrices. See dmmv_tiles.cuh. A tile
// has `split` warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps`
// * 256 columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns`
// columns.
#include "zinc/dmmv_q8_0_fused_pair.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q8_0_copied.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_fused_pair_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0, uint8_t* y1,
                         dmmv_q8_0_fused_pair_push p) {
  if constexpr (tile::copied > 0) {
    if (p.k > 0 && p.k <= tile::copied && (p.k % zinc::step_columns + p.a0_offset % 16 + p.a1_offset % 16) == 0 &&
        zinc::dmmv_copied_pair<zinc::CopiedQ8_0, 16 * tile::tiles>(weights0, weights1, x, y0, y1, p)) {
      return;
    }
  }
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_pair<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(weights0, weights1, x, y0, y1, p);
}
