// y = W x or y += W x for a q8_0 matrix and one f32 vector.
// Of at most `few` weights: grid x over groups of `few_rows` rows, or `tiny_rows` of at most `tiny` weights; see
// dmmv_few.cuh. Of more than `tiny` weights and up to `copied` columns: blocks of 8 warps with up to 64 rows, so many
// that all multiprocessors have one; see dmmv_copied.cuh.
// Else: grid x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q8_0.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_tiles.cuh"
#include "zinc/quant/q8_0_copied.cuh"
#include "zinc/quant/q8_0_piece.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    dmmv_q8_0(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_q8_0_push p) {
  if (zinc::is_few(p.m, p.k, tile::few)) {
    const uint8_t* const matrix[] = {weights + p.a_offset};
    const float* const vector = zinc::at_byte<float>(x, p.x_offset);
    const zinc::StoreRow store{zinc::at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0};
    if constexpr (tile::copied > 0) {
      if (zinc::is_copied<zinc::CopiedQ8_0>(p.m, p.k, p.a_offset, tile::copied, tile::tiny, tile::few)) {
        zinc::matvec_copied<zinc::CopiedQ8_0>(matrix[0], p.m, p.k, vector, store);
        return;
      }
    }
    if (zinc::is_few(p.m, p.k, tile::tiny)) {
      zinc::matvec_few<zinc::FewShape<zinc::Q8_0Piece, tile::tiny_rows>>(matrix, p.m, p.k, vector, store);
    } else {
      zinc::matvec_few<zinc::FewShape<zinc::Q8_0Piece, tile::few_rows>>(matrix, p.m, p.k, vector, store);
    }
    return;
  }
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head, false, false>;
  zinc::prefetch_tiles<zinc::Q8_0Tiles, Shape>(weights + p.a_offset, p.m, p.k, blockIdx.x, gridDim.x);
  zinc::wait_for_previous();
  zinc::dmmv_tiles<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(weights, x, y, p);
}
