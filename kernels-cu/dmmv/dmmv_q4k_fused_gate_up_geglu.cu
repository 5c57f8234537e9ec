// y = gelu(G x) * (U x) for two q4_K matrices of equal shape in one buffer.
// Grid: x, persistent blocks that walk over tiles of 8 rows of both matrices. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q4k_fused_gate_up_geglu.h"

#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_fused_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_fused_gate_up_geglu(const uint8_t* weights, const uint8_t* x, uint8_t* y,
                                 dmmv_q4k_fused_gate_up_geglu_push p) {
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_gate_up<zinc::Q4KTiles, Shape, tile::rows, tile::columns, zinc::GeGlu>(
      weights + p.gate_offset, weights + p.up_offset, p.m, p.k, zinc::at_byte<float>(x, p.x_offset),
      zinc::at_byte<float>(y, p.y_offset));
}
