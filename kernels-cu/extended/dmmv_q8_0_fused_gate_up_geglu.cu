// y = gelu(G x) * (U x) for two q8_0 matrices of equal shape.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them in
// both matrices, each lane every 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a
// time, or once if k is no larger.
//@ tile = { warps = 8, rows = 1, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_fused_gate_up_geglu.h"

#include "zinc/dmmv_fused.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_fused_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_gate_up_geglu(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y,
                                  dmmv_q8_0_fused_gate_up_geglu_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_gate_up<zinc::Q8_0, Shape, tile::columns, zinc::GeGlu>(w_gate + p.a_offset, w_up + p.a_offset, p.m, p.k,
                                                                    zinc::at_byte<float>(x, p.x_offset),
                                                                    zinc::at_byte<float>(y, p.y_offset));
}
