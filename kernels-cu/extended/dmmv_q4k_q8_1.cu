// y = W x or y += W x for a q4_K matrix and a q8_1 vector: exact int8 dot products per run of 16 columns.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns.
#include "zinc/dmmv_q4k_q8_1.h"

#include "zinc/dmmv_int8.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = dmmv_q4k_q8_1_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_q8_1(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q4k_q8_1_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_units_q8_1<zinc::Q4K, Shape>(weights, x, y, p);
}
