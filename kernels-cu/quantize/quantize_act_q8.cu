// Quantises rows to packed int8 with one f32 scale per 32 elements, planar. Grid: x over the matrix as one vector;
// eight lanes own one block, a lane four consecutive elements and the word of their quants, the first lane also the
// scale.
#include "zinc/quantize_act_q8.h"

#include "zinc/quantize.cuh"

ZINC_KERNEL void __launch_bounds__(quantize_act_q8_tile::threads)
    quantize_act_q8(const float* __restrict__ src, uint32_t* __restrict__ packed, float* __restrict__ scale,
                    quantize_act_q8_push p) {
  zinc::wait_for_previous();
  static_assert(quantize_act_q8_tile::threads == quantize_act_q8_tile::blocks * zinc::quant_block_lanes, "eight lanes");
  const zinc::VectorLane at(src, p.total_blocks);
  const zinc::QuantBlock quants = zinc::quantize_block<zinc::DirectFactor>(at.x);
  if (!at.exists) return;
  packed[at.block * zinc::quant_block_words + at.lane] = quants.word;
  if (at.lane == 0) scale[at.block] = quants.scale;
}
