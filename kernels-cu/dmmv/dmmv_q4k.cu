// y = W x or y += W x for a q4_K matrix and one f32 vector.
// Of at most `few` weights: grid x over row groups of `few_rows` rows, `mid_rows` of at most `mid` weights, or
// `tiny_rows` of at most `tiny`; see dmmv_few.cuh. The first two are equal, but compiled once for both they take 3 %
// longer on sm_90.
// Else: grid x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q4k.h"

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q4_k_piece.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q4k_push p) {
  if (zinc::is_few_staged(1, p.m, p.k, p.k, p.a_offset % 16, tile::few)) {
    const uint8_t* const matrix[] = {weights + p.a_offset};
    const float* const vector = zinc::at_byte<float>(x, p.x_offset);
    const zinc::StoreRow store{zinc::at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0};
    if (zinc::is_few(p.m, p.k, tile::tiny)) {
      zinc::matvec_few<zinc::FewShape<zinc::Q4KPiece, tile::tiny_rows>>(matrix, p.m, p.k, vector, store);
    } else if (zinc::is_few(p.m, p.k, tile::mid)) {
      zinc::matvec_few<zinc::FewShape<zinc::Q4KPiece, tile::mid_rows>>(matrix, p.m, p.k, vector, store);
    } else {
      zinc::matvec_few<zinc::FewShape<zinc::Q4KPiece, tile::few_rows>>(matrix, p.m, p.k, vector, store);
    }
    return;
  }
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::prefetch_tiles<zinc::Q4KTiles, Shape>(weights + p.a_offset, p.m, p.k, blockIdx.x, gridDim.x);
  zinc::wait_for_previous();
  zinc::dmmv_tiles<zinc::Q4KTiles, Shape, tile::rows, tile::columns>(weights, x, y, p);
}
