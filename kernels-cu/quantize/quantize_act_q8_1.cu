// Quantises rows to packed int8 with (scale, scale * sum) per 32 elements, planar. Grid: x over the matrix as one
// vector; eight lanes own one block, a lane four consecutive elements and the word of their quants, the first lane also
// the pair.
#include "zinc/quantize_act_q8_1.h"

#include "zinc/quantize.cuh"

ZINC_KERNEL void __launch_bounds__(quantize_act_q8_1_tile::threads)
    quantize_act_q8_1(const float* __restrict__ src, uint32_t* __restrict__ packed, float2* __restrict__ scale_dsum,
                      quantize_act_q8_1_push p) {
  zinc::wait_for_previous();
  static_assert(quantize_act_q8_1_tile::threads == quantize_act_q8_1_tile::blocks * zinc::quant_block_lanes,
                "eight lanes");
  const zinc::VectorLane at(src, p.total_blocks);
  const zinc::QuantBlock quants = zinc::quantize_block<zinc::DirectFactor>(at.x);
  if (!at.exists) return;
  packed[at.block * zinc::quant_block_words + at.lane] = quants.word;
  if (at.lane == 0) scale_dsum[at.block] = make_float2(quants.scale, quants.scale * static_cast<float>(quants.sum));
}
