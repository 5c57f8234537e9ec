// y = gelu(G x) * (U x) for two q8_0 matrices of equal shape.
// Matrices of at most `few` weights: grid x over groups of `few_rows` rows of both, see dmmv_few.cuh. Else:
// Grid: x, persistent blocks that walk over tiles of 8 rows of both matrices. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
//@ tile = { warps = 8, split = 2, stages = 2, blocks = 1, steps = 72, head = 74880, rows = 2, columns = 2048, threads = 256, few = 2097152, few_rows = 4 }
//@ block = ["k % 64 * few + m * k <= few ? 32 * min(max(ceil_div(k, 256), 1), 8) : 32 * warps"]
//@ grid = ["k % 64 * few + m * k <= few ? ceil_div(m, few_rows) : min(ceil_div(m, 8), blocks * sm_count)"]
//@ shared = "k % 64 * few + m * k <= few ? 64 * few_rows : head + min(ceil_div(k, 256), steps) * 1088"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0, head = 10240 }
//@ [arch.80]
//@ tile = { steps = 72, head = 74880 }
//@ [arch.86]
//@ tile = { warps = 4, split = 1, steps = 56, head = 37504 }
//@ [arch.90]
//@ tile = { warps = 16, split = 4, steps = 72, head = 149632, threads = 512 }
//@ [arch.120]
//@ tile = { warps = 4, split = 1, steps = 56, head = 37504 }
#include "zinc/dmmv_q8_0_fused_gate_up_geglu.h"

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q8_0_piece.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_fused_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    dmmv_q8_0_fused_gate_up_geglu(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y,
                                  dmmv_q8_0_fused_gate_up_geglu_push p) {
  const uint8_t* const matrix[] = {w_gate + p.a_offset, w_up + p.a_offset};
  const float* const vector = zinc::at_byte<float>(x, p.x_offset);
  float* const result = zinc::at_byte<float>(y, p.y_offset);
  if (zinc::is_few(p.m, p.k, tile::few)) {
    zinc::matvec_few<zinc::FewShape<zinc::Q8_0Piece, tile::few_rows>>(matrix, p.m, p.k, vector,
                                                                      zinc::StoreGated<zinc::GeGlu>{result});
  } else {
    zinc::wait_for_previous();
    using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
    zinc::dmmv_tiles_gate_up<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns, zinc::GeGlu>(matrix[0], matrix[1], p.m,
                                                                                             p.k, vector, result);
  }
}
