// y += sigmoid(gate[gate_offset]) W x for a q8_0 matrix and one f32 vector.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if k is no larger.
//@ tile = { warps = 8, rows = 2, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_sigmoid_acc.h"

#include "zinc/dmmv_fused.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_sigmoid_acc_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_sigmoid_acc(const uint8_t* weights, const uint8_t* x, uint8_t* y, const float* gate,
                          dmmv_q8_0_sigmoid_acc_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_add_scaled<zinc::Q8_0, Shape, tile::columns>(weights, x, y, zinc::sigmoid(gate[p.gate_offset]), p);
}
