// y = silu(G x) * (U x) for two q8_0 matrices of equal shape, and gate_out[0] = shared_gate_w . x.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them in both matrices,
// each lane every 32nd unit of 32 columns. The block stages x in shared memory, `columns` columns at a time, or once if
// k is no larger. The first warp of the last block, which has the fewest groups, computes the logit as well.
//@ tile = { warps = 8, rows = 1, columns = 4096, blocks = 4 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, warps * rows), blocks * sm_count)"]
#include "zinc/dmmv_q8_0_fused_gate_up_swiglu_gate.h"

#include "zinc/dmmv_dense.cuh"
#include "zinc/dmmv_fused.cuh"
#include "zinc/quant/q8_0.cuh"

namespace tile = dmmv_q8_0_fused_gate_up_swiglu_gate_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_gate_up_swiglu_gate(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y,
                                        const uint8_t* shared_gate_w, float* gate_out,
                                        dmmv_q8_0_fused_gate_up_swiglu_gate_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  const float* const vector = zinc::at_byte<float>(x, p.x_offset);
  zinc::dmmv_gate_up<zinc::Q8_0, Shape, tile::columns, zinc::SwiGlu>(w_gate + p.a_offset, w_up + p.a_offset, p.m, p.k,
                                                                     vector, zinc::at_byte<float>(y, p.y_offset));
  if (blockIdx.x == gridDim.x - 1 && zinc::warp_id() == 0) {
    const float logit = zinc::warp_dot_f32(shared_gate_w, vector, p.k);
    if (zinc::lane_id() == 0) gate_out[0] = logit;
  }
}
