// Per listed route q y_q = W_e x_t or += for stacked q6_K expert matrices; t = q / x_route_divisor.
// Grid: y over work-list entries of up to eight routes of one expert, `vectors` of them at a time; x over tiles of 16
// rows, walked with the grid's stride; see dmmv_tiles.cuh. The block makes int8 planes of the vectors of the routes in
// shared memory, `steps` * 256 columns at most, over all vectors; longer, misaligned or extreme ones go through f32
// arithmetic in stretches of `columns` columns; on 12.0 all do, because the products do not fit its registers.
#include "zinc/dmmv_q6k_moe_cols.h"

#include "zinc/dmmv_moe_cols.cuh"
#include "zinc/quant/q6_k_tiles.cuh"

namespace tile = dmmv_q6k_moe_cols_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q6k_moe_cols(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* counts,
                      const uint32_t* packed_ids, const uint32_t* active_blocks, dmmv_q6k_moe_cols_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_moe_cols<zinc::Q6KTiles, Shape, tile::vectors, tile::rows, tile::columns>(weights, x, y, counts,
                                                                                       packed_ids, active_blocks, p);
}
