// Quantises a vector to interleaved 36-byte Q8_1 blocks. Grid: x over the vector; eight lanes own one block, a lane
// four consecutive elements and the word of their quants, the first lane also the word of the two f16 values.
#include "zinc/quantize_q8_1.h"

#include "zinc/half.cuh"
#include "zinc/quantize.cuh"

ZINC_KERNEL void __launch_bounds__(quantize_q8_1_tile::threads)
    quantize_q8_1(const float* __restrict__ src, uint32_t* __restrict__ dst, quantize_q8_1_push p) {
  zinc::wait_for_previous();
  static_assert(quantize_q8_1_tile::threads == quantize_q8_1_tile::blocks * zinc::quant_block_lanes,
                "eight lanes each");
  constexpr unsigned block_words = zinc::quant_block_words + 1;
  const zinc::VectorLane at(src, p.num_blocks);
  const zinc::QuantBlock quants = zinc::quantize_block<zinc::ReciprocalFactor>(at.x);
  if (!at.exists) return;
  uint32_t* const words = dst + at.block * block_words;
  words[at.lane] = quants.word;
  if (at.lane == 0) {
    const uint32_t d = zinc::float_to_half(quants.scale);
    const uint32_t s = zinc::float_to_half(quants.scale * static_cast<float>(quants.sum));
    words[zinc::quant_block_words] = d | s << 16;
  }
}
