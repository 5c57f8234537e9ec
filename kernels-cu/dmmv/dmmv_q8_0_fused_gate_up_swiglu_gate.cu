// y = silu(G x) * (U x) for two q8_0 matrices of equal shape, and the dot product of x with one f32 row, by the last
// block. Grid: x, persistent blocks that walk over tiles of 8 rows of both matrices. See dmmv_tiles.cuh. A tile has
// `split` warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` *
// 256 columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
//@ tile = { warps = 8, split = 2, stages = 2, blocks = 1, steps = 72, head = 74880, rows = 2, columns = 2048 }
//@ block = ["32 * warps"]
//@ grid = ["min(ceil_div(m, 8), blocks * sm_count)"]
//@ shared = "head + min(ceil_div(k, 256), steps) * 1088"
//@ overlap = true
//@ [arch.75]
//@ tile = { steps = 0, head = 10240 }
//@ [arch.80]
//@ tile = { steps = 72, head = 74880 }
//@ [arch.86]
//@ tile = { warps = 4, split = 1, steps = 56, head = 37504 }
//@ [arch.90]
//@ tile = { warps = 16, split = 4, steps = 72, head = 149632 }
//@ [arch.120]
//@ tile = { warps = 4, split = 1, steps = 56, head = 37504 }
#include "zinc/dmmv_q8_0_fused_gate_up_swiglu_gate.h"

#include "zinc/dmmv_dense.cuh"
#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_fused_gate_up_swiglu_gate_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q8_0_fused_gate_up_swiglu_gate(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y,
                                        const uint8_t* shared_gate_w, float* gate_out,
                                        dmmv_q8_0_fused_gate_up_swiglu_gate_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_gate_up<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns, zinc::SwiGlu>(
      w_gate + p.a_offset, w_up + p.a_offset, p.m, p.k, zinc::at_byte<float>(x, p.x_offset),
      zinc::at_byte<float>(y, p.y_offset));
  if (blockIdx.x == gridDim.x - 1 && zinc::warp_id() == 0) {
    const float logit = zinc::warp_dot_f32(shared_gate_w, zinc::at_byte<float>(x, p.x_offset), p.k);
    if (zinc::lane_id() == 0) gate_out[0] = logit;
  }
}
