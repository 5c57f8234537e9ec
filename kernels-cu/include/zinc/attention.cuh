// Attention of one query row over a slice of the paged f32 KV cache: online softmax, sinks, partial results.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// The floor of the running maximum; scores below it weigh exactly 0.
constexpr float attention_floor = -1e30f;

// The K and V cache of one layer, seen by one key/value head.
struct PagedCache {
  const float* __restrict__ k;
  const float* __restrict__ v;
  const uint32_t* __restrict__ page_table;
  uint32_t page_size;
  uint32_t n_kv_heads;
  uint32_t kv_head;
  uint32_t head_dim;

  // First element of logical token t's row in both caches. 64 bits: long contexts pass 2^32 elements.
  ZINC_DEVICE uint64_t row(uint32_t t) const {
    const uint64_t slot = uint64_t{page_table[t / page_size]} * page_size + t % page_size;
    return (slot * n_kv_heads + kv_head) * head_dim;
  }
};

// The score multiplier: bits 0 stand for 1 / sqrt(head_dim).
ZINC_DEVICE float attention_scale(uint32_t bits, uint32_t head_dim) {
  return bits == 0 ? 1.0f / sqrtf(static_cast<float>(head_dim)) : __uint_as_float(bits);
}

// 1 / total, and 0 for a total that is 0 or NaN.
ZINC_DEVICE float reciprocal_or_zero(float total) { return total > 0.0f ? 1.0f / total : 0.0f; }

ZINC_DEVICE float dot(float4 a, float4 b) { return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x))); }

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

// One warp's online softmax over its share of the keys. A lane owns the elements 4 * lane .. 4 * lane + 3 of each
// chunk of 128 elements of a head, `chunks` chunks in all; elements past head_dim are zero.
template <unsigned chunks, unsigned keys_at_once>
struct WarpAttention {
  static constexpr unsigned lane_elements = 4;
  static constexpr unsigned chunk_elements = lane_elements * warp_size;

  float max = attention_floor;
  float sum = 0.0f;
  float4 out[chunks];

  ZINC_DEVICE static unsigned element(unsigned chunk) { return chunk * chunk_elements + lane_id() * lane_elements; }

  ZINC_DEVICE static void load(float4 (&to)[chunks], const float* row, uint32_t head_dim) {
#pragma unroll
    for (unsigned c = 0; c < chunks; ++c) {
      to[c] = element(c) < head_dim ? *reinterpret_cast<const float4*>(row + element(c)) : make_float4(0, 0, 0, 0);
    }
  }

  // Attends to the keys first, first + stride, ... in groups of keys_at_once consecutive ones, up to `end`.
  ZINC_DEVICE void run(const float* q, const PagedCache& cache, float scale, uint64_t first, uint64_t stride,
                       uint64_t end) {
    float4 query[chunks];
    load(query, q, cache.head_dim);
#pragma unroll
    for (unsigned c = 0; c < chunks; ++c) out[c] = make_float4(0, 0, 0, 0);
    for (uint64_t t = first; t < end; t += stride) step(query, cache, scale, static_cast<uint32_t>(t), end - t);
  }

 private:
  ZINC_DEVICE void step(const float4 (&query)[chunks], const PagedCache& cache, float scale, uint32_t t,
                        uint64_t left) {
    uint64_t row[keys_at_once];
    float score[keys_at_once];
    float4 vector[keys_at_once][chunks];
    // A key past the end repeats the first key of the group, which exists, and gets no weight below.
#pragma unroll
    for (unsigned j = 0; j < keys_at_once; ++j) {
      row[j] = cache.row(j < left ? t + j : t);
      load(vector[j], cache.k + row[j], cache.head_dim);
    }
#pragma unroll
    for (unsigned j = 0; j < keys_at_once; ++j) {
      score[j] = 0.0f;
#pragma unroll
      for (unsigned c = 0; c < chunks; ++c) score[j] += dot(query[c], vector[j][c]);
    }
    float new_max = max;
#pragma unroll
    for (unsigned j = 0; j < keys_at_once; ++j) {
      load(vector[j], cache.v + row[j], cache.head_dim);
      score[j] = scale * warp_sum(score[j]);
      if (j < left) new_max = fmaxf(new_max, score[j]);
    }
    // The maximum is never -infinity, so these exponents are NaN only for a NaN score or a score of +infinity, which
    // the contract wants to see in sum and out.
    const float shrink = expf(max - new_max);
    max = new_max;
    sum *= shrink;
#pragma unroll
    for (unsigned c = 0; c < chunks; ++c) out[c] = scaled(out[c], shrink);
#pragma unroll
    for (unsigned j = 0; j < keys_at_once; ++j) {
      if (j >= left) break;
      const float weight = expf(score[j] - new_max);
      sum += weight;
#pragma unroll
      for (unsigned c = 0; c < chunks; ++c) out[c] = add_scaled(out[c], weight, vector[j][c]);
    }
  }
};

// The block attends with one query row to the keys begin .. end - 1. Warp w takes the groups of keys w, w + warps, ...;
// the warps' results are then combined in warp order. `shared` holds warps * (head_dim + 2) floats, 16-byte aligned.
// Calls store(d, O[d], sums) for every d < head_dim, thread t for d = t, t + threads, ... Every thread of the block
// must call this; it contains one barrier.
template <unsigned warps, unsigned chunks, unsigned keys_at_once, class Store>
ZINC_DEVICE void attend(const float* q, const PagedCache& cache, float scale, uint64_t begin, uint64_t end,
                        float* shared, Store store) {
  const uint32_t head_dim = cache.head_dim;
  float* const warp_out = shared;
  float* const warp_max = shared + warps * head_dim;
  float* const warp_total = warp_max + warps;

  WarpAttention<chunks, keys_at_once> warp;
  warp.run(q, cache, scale, begin + warp_id() * keys_at_once, warps * keys_at_once, end);
#pragma unroll
  for (unsigned c = 0; c < chunks; ++c) {
    const unsigned d = warp.element(c);
    if (d < head_dim) *reinterpret_cast<float4*>(warp_out + warp_id() * head_dim + d) = warp.out[c];
  }
  if (lane_id() == 0) {
    warp_max[warp_id()] = warp.max;
    warp_total[warp_id()] = warp.sum;
  }
  __syncthreads();

  SliceSums all = {attention_floor, 0.0f};
#pragma unroll
  for (unsigned w = 0; w < warps; ++w) all.max = fmaxf(all.max, warp_max[w]);
  float weight[warps];
#pragma unroll
  for (unsigned w = 0; w < warps; ++w) {
    weight[w] = expf(warp_max[w] - all.max);
    all.sum = fmaf(weight[w], warp_total[w], all.sum);
  }
  for (uint32_t d = threadIdx.x; d < head_dim; d += warps * warp_size) {
    float sum = 0.0f;
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) sum = fmaf(weight[w], warp_out[w * head_dim + d], sum);
    store(d, sum, all);
  }
}

// Chooses the instance for the head size: the registers of a lane are sized for 128, 256 or 512 elements a head.
template <unsigned warps, class Store>
ZINC_DEVICE void attend_any_head(const float* q, const PagedCache& cache, float scale, uint64_t begin, uint64_t end,
                                 float* shared, Store store) {
  if (cache.head_dim <= 128) {
    attend<warps, 1, 4>(q, cache, scale, begin, end, shared, store);
  } else if (cache.head_dim <= 256) {
    attend<warps, 2, 4>(q, cache, scale, begin, end, shared, store);
  } else {
    attend<warps, 4, 2>(q, cache, scale, begin, end, shared, store);
  }
}

}  // namespace zinc
