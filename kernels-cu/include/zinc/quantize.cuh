// Quantisation of activations to int8 in blocks of 32 elements, by eight lanes with four consecutive elements each.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

constexpr unsigned quant_block_lanes = 8;
constexpr unsigned quant_block_words = 8;  // of four int8 each
constexpr float int8_limit = 127.0f;

// What a lane knows of its block: its own four quants, lowest element in the lowest byte, the f32 scale, and the sum of
// all 32 quants of the block.
struct QuantBlock {
  uint32_t word;
  float scale;
  int sum;
};

// The factor from elements to quants. Blocks of so small a maximum that the division overflows get zeros.

// 127 / amax, as the planar layouts want it.
struct DirectFactor {
  ZINC_DEVICE static float of(float amax, float) { return amax < 3.8e-37f ? 0.0f : int8_limit / amax; }
};

// The reciprocal of the f32 scale, as the interleaved layout wants it.
struct ReciprocalFactor {
  ZINC_DEVICE static float of(float amax, float scale) { return amax < 4e-37f ? 0.0f : 1.0f / scale; }
};

// The quant of x in the lowest byte: the sum with 1.5 * 2^23 is rounded to an integer, halves to even, whose two's
// complement it holds in its low bits. The product may pass 127 by rounding errors only. Conversions to integers would
// take a quarter of the time of the whole block.
ZINC_DEVICE uint32_t rounded_quant(float x, float factor) {
  constexpr float integers = 12582912.0f;
  return __float_as_uint(fmaf(x, factor, integers));
}

// Quantises the block of 32 elements that the aligned group of eight lanes holds. All lanes of the warp must call this.
template <class Factor>
ZINC_DEVICE QuantBlock quantize_block(float4 x) {
  const float amax = warp_max<quant_block_lanes>(fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
  const float scale = amax * (1.0f / int8_limit);
  const float factor = Factor::of(amax, scale);
  const uint32_t low = __byte_perm(rounded_quant(x.x, factor), rounded_quant(x.y, factor), 0x0040);
  const uint32_t high = __byte_perm(rounded_quant(x.z, factor), rounded_quant(x.w, factor), 0x0040);
  const uint32_t word = __byte_perm(low, high, 0x5410);
  return {word, scale, warp_sum<quant_block_lanes>(__dp4a(static_cast<int>(word), 0x01010101, 0))};
}

// The lane's four elements of a vector of `blocks` blocks: the lanes of the grid are dealt to the blocks in order, and
// a lane past the end holds zeros.
struct VectorLane {
  uint64_t block;
  unsigned lane;  // within the block
  bool exists;
  float4 x;

  ZINC_DEVICE VectorLane(const float* src, uint64_t blocks) {
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    block = i / quant_block_lanes;
    lane = threadIdx.x % quant_block_lanes;
    exists = block < blocks;
    x = exists ? reinterpret_cast<const float4*>(src)[i] : make_float4(0, 0, 0, 0);
  }
};

}  // namespace zinc
