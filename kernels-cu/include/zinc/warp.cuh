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

// Sums `count` values, a power of two, over each aligned group of `width` lanes at once: the lane number l of the group
// gets the sum of value l / (width / count). Each step trades half of the values with the partner lane, so that all the
// sums cost count - 1 shuffles and a few more instead of five for each.
template <unsigned width = warp_size, unsigned count>
ZINC_DEVICE float warp_sums(const float (&value)[count]) {
  static_assert(count <= width && (count & (count - 1)) == 0, "the sums are dealt to groups of lanes");
  if constexpr (count == 1) {
    return warp_sum<width>(value[0]);
  } else {
    const bool upper = lane_id() & (width / 2);
    float half[count / 2];
#pragma unroll
    for (unsigned i = 0; i < count / 2; ++i) {
      const float low = value[i];
      const float high = value[count / 2 + i];
      half[i] = (upper ? high : low) + __shfl_xor_sync(full_warp, upper ? low : high, width / 2);
    }
    return warp_sums<width / 2>(half);
  }
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

// Largest and smallest number of the warp. From sm_80 on one instruction.
ZINC_DEVICE uint32_t warp_max_u32(uint32_t value) {
#if ZINC_ARCH == 0 || ZINC_ARCH >= 80
  return __reduce_max_sync(full_warp, value);
#else
#pragma unroll
  for (unsigned offset = warp_size / 2; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(full_warp, value, offset));
  }
  return value;
#endif
}

ZINC_DEVICE uint32_t warp_min_u32(uint32_t value) { return ~warp_max_u32(~value); }

// Bits of a float, reordered so that unsigned comparison orders the floats.
ZINC_DEVICE uint32_t ordered_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
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

// Whether this lane's best is that of the warp. Of lanes with the same one the lowest says so.
ZINC_DEVICE bool is_warp_best(Best best) {
  const uint32_t order = ordered_bits(best.value + 0.0f);  // -0 equals +0
  const bool largest = order == warp_max_u32(order);
  const uint32_t index = warp_min_u32(largest ? best.index : 0xffffffffu);
  const unsigned owners = __ballot_sync(full_warp, largest && best.index == index);
  return lane_id() + 1 == static_cast<unsigned>(__ffs(owners));
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

// Sum of the values of this lane and those before it.
ZINC_DEVICE uint32_t warp_prefix_sum(uint32_t value) {
#pragma unroll
  for (unsigned offset = 1; offset < warp_size; offset *= 2) {
    const uint32_t lower = __shfl_up_sync(full_warp, value, offset);
    if (lane_id() >= offset) value += lower;
  }
  return value;
}

// Sums of the values of all threads before this one, and of all threads.
struct PrefixSum {
  uint32_t before;
  uint32_t total;
};

ZINC_DEVICE PrefixSum block_prefix_sum(uint32_t value, uint32_t (&scratch)[max_block_warps]) {
  const uint32_t inclusive = warp_prefix_sum(value);
  if (lane_id() == warp_size - 1) scratch[warp_id()] = inclusive;
  __syncthreads();
  const uint32_t of_warp = lane_id() < block_warps() ? scratch[lane_id()] : 0;
  const uint32_t of_warps = warp_prefix_sum(of_warp);
  const uint32_t before = __shfl_sync(full_warp, of_warps - of_warp, warp_id());
  return {before + inclusive - value, __shfl_sync(full_warp, of_warps, warp_size - 1)};
}

// Gives the best of the block to store(best), in one thread.
template <class Store>
ZINC_DEVICE void with_block_best(Best best, Best (&scratch)[max_block_warps], Store store) {
  if (is_warp_best(best)) scratch[warp_id()] = best;
  __syncthreads();
  if (warp_id() != 0) return;
  best = scratch[lane_id() < block_warps() ? lane_id() : 0];
  if (is_warp_best(best)) store(best);
}

}  // namespace zinc
