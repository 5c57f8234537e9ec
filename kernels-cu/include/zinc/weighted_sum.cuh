// Recombination of expert outputs with their routing weights.
#pragma once
#include "zinc/elementwise.cuh"

namespace zinc {

// accum[i] += sum over slots j < n_used, ascending, of weights[j] * src[j * src_stride + i]. The sum is formed first.
// The block owns tile `tile` of the row, as in map_tile.
template <unsigned threads, unsigned per_thread>
ZINC_DEVICE void accumulate_experts(uint32_t tile, float* __restrict__ accum, const float* __restrict__ src,
                                    uint64_t src_stride, const uint32_t* __restrict__ weights, uint32_t n,
                                    uint32_t n_used) {
  const bool aligned = all_aligned(accum, src) && src_stride % wide == 0;
  map_tile<threads, per_thread>(tile, aligned, accum, n, [=](auto at) {
    const auto before = at.of(accum);
    auto sum = each([](float) { return 0.0f; }, before);
    const auto add = [](const auto& value, uint32_t weight, const auto& to) {
      return each([=](float v, float s) { return fmaf(__uint_as_float(weight), v, s); }, value, to);
    };
    // The loads of several slots are in flight together.
    constexpr unsigned ahead = 4;
    uint32_t j = 0;
    for (; j + ahead <= n_used; j += ahead) {
      Pack<float, at.width> value[ahead];
      uint32_t weight[ahead];
#pragma unroll
      for (unsigned a = 0; a < ahead; ++a) {
        value[a] = at.of(src + (j + a) * src_stride);
        weight[a] = weights[j + a];
      }
#pragma unroll
      for (unsigned a = 0; a < ahead; ++a) sum = add(value[a], weight[a], sum);
    }
#pragma unroll 1
    for (; j < n_used; ++j) sum = add(at.of(src + j * src_stride), weights[j], sum);
    return each([](float a, float s) { return a + s; }, before, sum);
  });
}

}  // namespace zinc
