// y = W x or y += W x for an f16 matrix and one f32 vector.
// Of more than `tiny` and at most `few` weights and `copied` columns, of compute capability 9.0: blocks of 8 warps
// with up to 64 rows, so many that all multiprocessors have one; see dmmv_copied_dense.cuh. Else: grid x, persistent
// blocks that walk over groups of warps * rows rows; each warp has `rows` of them. A lane loads 16 bytes of a row at a
// time, neighbouring lanes neighbouring columns; where rows or x are not aligned, one column. Where there is a block
// for each row, all its warps share that.
#include "zinc/dmmv_f16.h"

#include "zinc/dmmv_copied_dense.cuh"
#include "zinc/dmmv_dense.cuh"

namespace tile = dmmv_f16_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_f16(const uint8_t* weights, const uint8_t* x, uint8_t* y, dmmv_f16_push p) {
  if constexpr (tile::copied > 0) {
    if (zinc::is_copied<zinc::CopiedF16>(p.m, p.k, p.a_offset | p.x_offset, tile::copied, tile::tiny, tile::few)) {
      zinc::dmmv_copied_dense<zinc::CopiedF16>(weights, x, y, p);
      return;
    }
  }
  zinc::wait_for_previous();
  zinc::dmmv_dense<zinc::DenseF16, zinc::RowShape<tile::warps, tile::rows>>(weights, x, y, p);
}
