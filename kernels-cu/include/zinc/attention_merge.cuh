// The merged output of split attention as the activations of the product that follows it.
#pragma once

#include "zinc/dmmv.cuh"

namespace zinc {

// Limits of the contract that kernels may rely on.
constexpr unsigned max_merge_slices = 512;  // heads * slices per head

// Column h * head_dim + e is the sum over the slices j of head h of factor[h * slices + j] times their unnormalized
// value sum. A negative factor marks a slice without keys, whose values are not read.
struct MergedHeads {
  const float* partial;
  const float* factors;
  uint32_t slices;
  uint32_t head_dim;

  ZINC_DEVICE float one(uint32_t c) const {
    const uint32_t head = c / head_dim;
    const uint32_t e = c - head * head_dim;
    float sum = 0.0f;
    for (uint32_t j = head * slices; j < (head + 1) * slices; ++j) {
      if (factors[j] >= 0.0f) sum = fmaf(factors[j], __ldg(partial + uint64_t{j} * head_dim + e), sum);
    }
    return sum;
  }

  ZINC_DEVICE float4 four(unsigned, uint32_t c) const {
    return make_float4(one(c), one(c + 1), one(c + 2), one(c + 3));
  }
};

// The factors exp(M_j - M) / T of all slices, by all threads of the block; the caller's next barrier publishes them.
// `states` holds (M, L) per slice; a sink that is not NaN takes part in the maximum M and in the sum T.
ZINC_DEVICE void merge_factors(float (&factors)[max_merge_slices], const float* states, const float* sinks,
                               uint32_t heads, uint32_t slices) {
  constexpr float empty = -1.0f;
  for (uint32_t head = threadIdx.x; head < heads; head += blockDim.x) {
    const float* const state = states + 2 * head * slices;
    const float sink = sinks[head];
    const bool has_sink = sink == sink;
    float top = -INFINITY;
    for (uint32_t j = 0; j < slices; ++j) {
      if (state[2 * j + 1] > 0.0f) top = fmaxf(top, state[2 * j]);
    }
    if (has_sink) top = fmaxf(top, sink);
    float total = has_sink ? expf(sink - top) : 0.0f;
    for (uint32_t j = 0; j < slices; ++j) {
      if (state[2 * j + 1] > 0.0f) total = fmaf(expf(state[2 * j] - top), state[2 * j + 1], total);
    }
    for (uint32_t j = 0; j < slices; ++j) {
      factors[head * slices + j] = state[2 * j + 1] > 0.0f ? expf(state[2 * j] - top) / total : empty;
    }
  }
}

// y[r] = row r times the merged heads, or y[r] += where acc_mode is not 0.
template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_merged(const uint8_t* weights, const float* partial, uint8_t* y, const float* sinks,
                             const Push& p) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  ZINC_SHARED(float[max_merge_slices], factors);
  // The states follow the values of all heads.
  const float* const states = partial + uint64_t{p.n_heads} * p.n_i_chunks * p.head_dim;
  merge_factors(factors, states, sinks + p.sink_offset, p.n_heads, p.n_i_chunks);
  __syncthreads();
  Activations<Tile, Shape::threads, MergedHeads> activations(tile, p.k, {partial, factors, p.n_i_chunks, p.head_dim});
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x,
                StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

}  // namespace zinc
