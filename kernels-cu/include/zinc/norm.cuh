// Root-mean-square normalisation of rows: the factor, and the skeleton of kernels in which a block owns one row.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// 1 / sqrt(mean square + eps) of n elements.
ZINC_DEVICE float inverse_rms(float sum_of_squares, uint32_t n, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

// The inverse RMS of the row load(0) .. load(n - 1) that the block owns; thread t loads the elements t, t + blockDim.x,
// ... Every thread of a block of whole warps must call this; it contains one barrier, behind all loads.
template <class Load>
ZINC_DEVICE float row_inverse_rms(uint32_t n, float eps, Load load) {
  ZINC_SHARED(float[max_block_warps], partial);
  float sum = 0.0f;
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float v = load(static_cast<uint32_t>(i));
    sum = fmaf(v, v, sum);
  }
  return inverse_rms(block_sum(sum, partial), n, eps);
}

// Normalises one row: store(i, v, r) for every i < n, where v = load(i) and r is the inverse RMS of the row's v.
// The block owns the row, thread t its elements t, t + blockDim.x, ... : all of a thread's calls concern its own
// elements, every load comes before the first store of any thread, so that the row may be overwritten in place.
// A thread keeps its first `held` elements in registers; it fetches those of a longer row a second time, with reload.
// Every thread of a block of whole warps must call this; it contains one barrier.
template <unsigned held, class Load, class Reload, class Store>
ZINC_DEVICE void rms_norm_row(uint32_t n, float eps, Load load, Reload reload, Store store) {
  ZINC_SHARED(float[max_block_warps], partial);
  float value[held];
  float sum = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < held; ++j) {
    const uint32_t i = threadIdx.x + j * blockDim.x;
    value[j] = i < n ? load(i) : 0.0f;
    sum = fmaf(value[j], value[j], sum);
  }
  for (uint64_t i = threadIdx.x + held * blockDim.x; i < n; i += blockDim.x) {
    const float v = load(static_cast<uint32_t>(i));
    sum = fmaf(v, v, sum);
  }
  const float r = inverse_rms(block_sum(sum, partial), n, eps);
#pragma unroll
  for (unsigned j = 0; j < held; ++j) {
    const uint32_t i = threadIdx.x + j * blockDim.x;
    if (i < n) store(i, value[j], r);
  }
  for (uint64_t i = threadIdx.x + held * blockDim.x; i < n; i += blockDim.x) {
    const uint32_t at = static_cast<uint32_t>(i);
    store(at, reload(at), r);
  }
}

// The usual case, in which loading has no effect and may be repeated.
template <unsigned held, class Load, class Store>
ZINC_DEVICE void rms_norm_row(uint32_t n, float eps, Load load, Store store) {
  rms_norm_row<held>(n, eps, load, load, store);
}

}  // namespace zinc
