// Reductions over the lanes of a warp and the warps of a block. All of them combine in a fixed order, so that equal
// inputs give equal bits on every run, and leave the result in every participating thread.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

constexpr unsigned warp_size = 32;
constexpr unsigned full_warp = 0xffffffffu;
// The largest number of warps in a block, hence the length of the scratch array of a block-wide reduction.
constexpr unsigned max_block_warps = 32;

ZINC_DEVICE unsigned lane_id() { return threadIdx.x % warp_size; }
ZINC_DEVICE unsigned warp_id() { return threadIdx.x / warp_size; }
ZINC_DEVICE unsigned block_warps() { return blockDim.x / warp_size; }

// Sum over each aligned group of `width` lanes that are `stride` lanes apart. The butterfly adds the same two numbers
// in both partners, so all lanes of a group hold the same bits.
template <unsigned width = warp_size, unsigned stride = 1, class T>
ZINC_DEVICE T warp_sum(T value) {
  static_assert(width * stride <= warp_size && (width & (width - 1)) == 0, "a group is a power of two of lanes");
#pragma unroll
  for (unsigned offset = width / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(full_warp, value, offset * stride);
  return value;
}

// Largest value of each aligned group of `width` lanes that are `stride` lanes apart. A NaN is ignored unless the whole
// group is NaN.
template <unsigned width = warp_size, unsigned stride = 1>
ZINC_DEVICE float warp_max(float value) {
  static_assert(width * stride <= warp_size && (width & (width - 1)) == 0, "a group is a power of two of lanes");
#pragma unroll
  for (unsigned offset = width / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(full_warp, value, offset * stride));
  }
  return value;
}

// Largest unsigned key of the warp.
ZINC_DEVICE uint64_t warp_max_key(uint64_t key) {
#pragma unroll
  for (unsigned offset = warp_size / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(full_warp, key, offset);
    key = other > key ? other : key;
  }
  return key;
}

// A value and the index it was found at. Between equal values the lower index wins, whatever the order of comparison;
// a NaN never wins.
struct Best {
  float value;
  uint32_t index;

  ZINC_DEVICE void take_better(Best other) {
    const bool better = other.value > value || (other.value == value && other.index < index);
    value = better ? other.value : value;
    index = better ? other.index : index;
  }
};

ZINC_DEVICE Best warp_argmax(Best best) {
#pragma unroll
  for (unsigned offset = warp_size / 2; offset > 0; offset /= 2) {
    best.take_better({__shfl_xor_sync(full_warp, best.value, offset), __shfl_xor_sync(full_warp, best.index, offset)});
  }
  return best;
}

// The block-wide forms. Every thread of a block of whole warps must call them, with a shared `scratch` that nothing
// else uses between the block's previous barrier and its next one. They contain one barrier, after which scratch holds
// one partial result per warp; what the threads wrote before the call is visible after it.

template <class T>
ZINC_DEVICE T block_sum(T value, T (&scratch)[max_block_warps]) {
  value = warp_sum(value);
  if (lane_id() == 0) scratch[warp_id()] = value;
  __syncthreads();
  return warp_sum(lane_id() < block_warps() ? scratch[lane_id()] : T{});
}

// Sums of the values of all threads before this one, and of all threads.
struct PrefixSum {
  uint32_t before;
  uint32_t total;
};

ZINC_DEVICE PrefixSum block_prefix_sum(uint32_t value, uint32_t (&scratch)[max_block_warps]) {
  uint32_t inclusive = value;
#pragma unroll
  for (unsigned offset = 1; offset < warp_size; offset *= 2) {
    const uint32_t lower = __shfl_up_sync(full_warp, inclusive, offset);
    if (lane_id() >= offset) inclusive += lower;
  }
  if (lane_id() == warp_size - 1) scratch[warp_id()] = inclusive;
  __syncthreads();
  PrefixSum sums = {inclusive - value, 0};
  for (unsigned w = 0; w < block_warps(); ++w) {
    if (w < warp_id()) sums.before += scratch[w];
    sums.total += scratch[w];
  }
  return sums;
}

// A NaN is ignored, as in warp_max.
ZINC_DEVICE float block_max(float value, float (&scratch)[max_block_warps]) {
  value = warp_max(value);
  if (lane_id() == 0) scratch[warp_id()] = value;
  __syncthreads();
  return warp_max(scratch[lane_id() < block_warps() ? lane_id() : 0]);
}

ZINC_DEVICE Best block_argmax(Best best, Best (&scratch)[max_block_warps]) {
  best = warp_argmax(best);
  if (lane_id() == 0) scratch[warp_id()] = best;
  __syncthreads();
  return warp_argmax(scratch[lane_id() < block_warps() ? lane_id() : 0]);
}

}  // namespace zinc
