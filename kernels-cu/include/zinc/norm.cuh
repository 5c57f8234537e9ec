// Root-mean-square normalisation of rows: the factor, and the skeleton of kernels whose threads hold a row in
// registers.
#pragma once
#include "zinc/span.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// 1 / sqrt(mean square + eps) of n elements. The reciprocal of n does not wait for the sum.
ZINC_DEVICE float inverse_rms(float sum_of_squares, uint32_t n, float eps) {
  return rsqrtf(fmaf(sum_of_squares, 1.0f / static_cast<float>(n), eps));
}

// The threads of a block that share a row: all those with the same threadIdx.y, which are one warp wherever a block
// owns several rows. What a thread read before the call was read before any thread returns.
ZINC_DEVICE float row_sum(float value, float (&scratch)[max_block_warps]) {
  return blockDim.x == warp_size ? warp_sum(value) : block_sum(value, scratch);
}

// The row of this thread, in a grid of ceil_div(rows, blockDim.y) blocks.
ZINC_DEVICE uint64_t own_row() { return uint64_t{blockIdx.x} * blockDim.y + threadIdx.y; }

template <unsigned width>
ZINC_DEVICE float add_squares(const Pack<float, width>& v, float sum) {
#pragma unroll
  for (unsigned i = 0; i < width; ++i) sum = fmaf(v.at[i], v.at[i], sum);
  return sum;
}

// One row in spans of one width, of which n is a multiple. The threads of the row own its spans in turn. A thread holds
// its first `held` elements in registers: load(at) gives their values, keep(at, v) may store them when all of a
// thread's loads are done, aux(at) fetches what else store needs, and store(at, v, aux, r) comes after the reduction,
// when every thread of the row has loaded. For the rest of a longer row reload(at) must give what load gave before
// keep.
template <unsigned held, unsigned width, class Load, class Keep, class Reload, class Aux, class Store>
ZINC_DEVICE void norm_spans(uint32_t n, float eps, Load load, Keep keep, Reload reload, Aux aux, Store store) {
  ZINC_SHARED(float[max_block_warps], partial);
  using At = Span<width>;
  constexpr unsigned spans = held / width;
  static_assert(spans * width == held, "a thread holds whole spans");
  const uint32_t step = blockDim.x * width;
  const uint32_t first = threadIdx.x * width;
  Pack<float, width> value[spans];
  decltype(aux(At{0})) extra[spans];
  float sum = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < n) value[j] = load(At{first + j * step});
  }
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < n) extra[j] = aux(At{first + j * step});
  }
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < n) {
      keep(At{first + j * step}, value[j]);
      sum = add_squares(value[j], sum);
    }
  }
  for (uint64_t i = first + uint64_t{spans} * step; i < n; i += step) {
    const auto v = load(At{i});
    keep(At{i}, v);
    sum = add_squares(v, sum);
  }
  const float r = inverse_rms(row_sum(sum, partial), n, eps);
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < n) store(At{first + j * step}, value[j], extra[j], r);
  }
  for (uint64_t i = first + uint64_t{spans} * step; i < n; i += step) store(At{i}, reload(At{i}), aux(At{i}), r);
}

// norm_spans with the widest spans that the addresses allow: `aligned` tells that all rows begin at multiples of 16
// bytes. Rows of other lengths are rare: they are fetched twice, so that they take no registers from the usual ones.
template <unsigned held, class Load, class Keep, class Reload, class Aux, class Store>
ZINC_DEVICE void norm_row(uint32_t n, float eps, bool aligned, Load load, Keep keep, Reload reload, Aux aux,
                          Store store) {
  if (aligned && n % wide == 0) {
    norm_spans<held, wide>(n, eps, load, keep, reload, aux, store);
  } else {
    norm_spans<1, 1>(n, eps, load, keep, reload, aux, store);
  }
}

// The usual case, in which loading has no effect and may be repeated.
template <unsigned held, class Load, class Aux, class Store>
ZINC_DEVICE void norm_row(uint32_t n, float eps, bool aligned, Load load, Aux aux, Store store) {
  norm_row<held>(n, eps, aligned, load, [](auto, const auto&) {}, load, aux, store);
}

}  // namespace zinc
