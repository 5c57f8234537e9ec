// y += s W x for a q5_1 matrix and one f32 vector; scale_bits are the bits of s.
// Grid: x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q5_1_acc.h"

#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q5_1_tiles.cuh"

namespace tile = dmmv_q5_1_acc_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q5_1_acc(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q5_1_acc_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head, tile::cached != 0>;
  zinc::dmmv_tiles_add_scaled<zinc::Q5_1Tiles, Shape, tile::rows, tile::columns>(weights, x, y,
                                                                                 __uint_as_float(p.scale_bits), p);
}
