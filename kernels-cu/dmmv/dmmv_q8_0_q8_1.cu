// y = W x or y += W x for a q8_0 matrix and a q8_1 vector: exact int8 dot products per block of 32 columns.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd block of a row.
#include "zinc/dmmv_q8_0_q8_1.h"

#include "zinc/dmmv_int8.cuh"

namespace tile = dmmv_q8_0_q8_1_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_q8_1(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q8_0_q8_1_push p) {
  zinc::dmmv_q8_1<zinc::RowShape<tile::warps, tile::rows>>(weights, x, y, p);
}
