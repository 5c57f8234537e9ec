// y = W x or y += W x for a q4_K matrix and one f32 vector.
// Of at most `few` weights: grid x over row groups of `few_rows` rows, `mid_rows` of at most `mid` weights, or
// `tiny_rows` of at most `tiny`; see dmmv_few.cuh. The first two are equal, but compiled once for both they take 3 %
// longer on sm_90.
// Else: grid x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
//@ tile = { warps = 16, split = 4, stages = 1, blocks = 1, steps = 72, head = 10240, rows = 2, columns = 2048, few = 16777216, few_rows = 8, mid = 8388608, mid_rows = 8, tiny = 2097152, tiny_rows = 4 }
//@ block = ["(a_offset % 16 + ceil_div(max(k, 1), 8192) - 1) * few + m * max(k, 256) <= few ? (k <= 4096 ? 128 : 256) : 32 * warps"]
//@ grid = ["(a_offset % 16 + ceil_div(max(k, 1), 8192) - 1) * few + m * max(k, 256) <= few ? ceil_div(m, (m * k <= tiny ? tiny_rows : m * k <= mid ? mid_rows : few_rows) * (k <= 4096 ? (8 - 8 % max(ceil_div(k, 512), 1)) / max(ceil_div(k, 512), 1) : 1)) : min(ceil_div(m, 16), blocks * sm_count)"]
//@ shared = "(a_offset % 16 + ceil_div(max(k, 1), 8192) - 1) * few + m * max(k, 256) <= few ? (k <= 4096 ? 8 : 16) * (2048 + 4 * few_rows) : head + min(ceil_div(k, 256), steps) * 1120"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0 }
//@ [arch.80]
//@ tile = { steps = 72 }
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
