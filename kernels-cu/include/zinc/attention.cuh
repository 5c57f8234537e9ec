// What all attention kernels share: the paged f32 KV cache, the sums of a softmax, sinks.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// A number as a type, for functions that choose an instance.
template <unsigned n>
struct Count {
  static constexpr unsigned value = n;
};

// The floor of the running maximum; scores below it weigh exactly 0.
constexpr float attention_floor = -1e30f;
// The score of a key that a row does not see.
constexpr float hidden_score = -3e38f;

// The K and V cache of one layer, seen by one key/value head.
struct PagedCache {
  const float* __restrict__ k;
  const float* __restrict__ v;
  const uint32_t* __restrict__ page_table;
  uint32_t page_size;
  uint32_t n_kv_heads;
  uint32_t kv_head;
  uint32_t head_dim;

  ZINC_DEVICE uint64_t slot(uint32_t t) const {
    return uint64_t{page_table[t / page_size]} * page_size + t % page_size;
  }

  // First element of logical token t's row in both caches. 64 bits: long contexts pass 2^32 elements.
  ZINC_DEVICE uint64_t row(uint32_t t) const { return (slot(t) * n_kv_heads + kv_head) * head_dim; }
};

// The score multiplier: bits 0 stand for 1 / sqrt(head_dim).
ZINC_DEVICE float attention_scale(uint32_t bits, uint32_t head_dim) {
  return bits == 0 ? 1.0f / sqrtf(static_cast<float>(head_dim)) : __uint_as_float(bits);
}

// 1 / total, and 0 for a total that is 0 or NaN.
ZINC_DEVICE float reciprocal_or_zero(float total) { return total > 0.0f ? 1.0f / total : 0.0f; }

ZINC_DEVICE float add_dot(float sum, float4 a, float4 b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

ZINC_DEVICE float4 scaled(float4 a, float s) { return make_float4(a.x * s, a.y * s, a.z * s, a.w * s); }

ZINC_DEVICE float4 add_scaled(float4 sum, float s, float4 a) {
  return make_float4(fmaf(s, a.x, sum.x), fmaf(s, a.y, sum.y), fmaf(s, a.z, sum.z), fmaf(s, a.w, sum.w));
}

// What attention leaves of a slice: the maximum M of its scores (at least the floor) and L, the sum of exp(s - M). The
// un-normalised output O, the sum of exp(s - M) * V, lies elsewhere.
struct SliceSums {
  float max;
  float sum;
};

// Factor that turns O of the whole sequence into the output. `sink` is one more logit without a value; NaN is none.
ZINC_DEVICE float output_factor(SliceSums s, float sink) {
  if (sink != sink) return reciprocal_or_zero(s.sum);
  const float m = fmaxf(s.max, sink);
  const float e = s.sum > 0.0f ? expf(s.max - m) : 0.0f;
  return e * reciprocal_or_zero(s.sum * e + expf(sink - m));
}

}  // namespace zinc
