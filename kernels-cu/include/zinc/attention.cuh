// Attention of a few query rows over a slice of the paged f32 KV cache: online softmax, sinks, partial results.
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

// The keys that the rows of a warp attend to: from `begin` on, row r up to, but excluding, first_end + min(r,
// last_row). Rows past last_row repeat that row, and their results are dropped.
struct KeyRange {
  uint64_t begin;
  uint64_t first_end;
  uint32_t last_row;

  ZINC_DEVICE uint64_t end(uint32_t row) const { return first_end + min(row, last_row); }
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

// One warp's online softmax of `rows` query rows over its share of the keys, `keys` consecutive ones at a time. For the
// products a lane owns the elements 4 * lane .. 4 * lane + 3 of each chunk of 128 elements of a head, `chunks` in all;
// elements past head_dim are zero. For the scores, the lanes are dealt to (row, key) pairs, row-major.
template <unsigned chunks, unsigned rows, unsigned keys>
struct WarpAttention {
  static constexpr unsigned lane_elements = 4;
  static constexpr unsigned chunk_elements = lane_elements * warp_size;
  static constexpr unsigned row_lanes = warp_size / rows;
  static constexpr unsigned score_lanes = row_lanes / keys;
  static_assert(row_lanes * rows == warp_size && score_lanes * keys == row_lanes && score_lanes > 0,
                "every lane belongs to one score");

  float4 out[rows][chunks];

  ZINC_DEVICE static unsigned element(unsigned chunk) { return chunk * chunk_elements + lane_id() * lane_elements; }

  ZINC_DEVICE static void load(float4 (&to)[chunks], const float* row, uint32_t head_dim) {
#pragma unroll
    for (unsigned c = 0; c < chunks; ++c) {
      to[c] = element(c) < head_dim ? *reinterpret_cast<const float4*>(row + element(c)) : make_float4(0, 0, 0, 0);
    }
  }

  // Attends to the groups of `keys` keys number first, first + stride, ... of the range. Row r of the queries is at
  // q + min(r, range.last_row) * q_stride. Returns the sums of the lane's row.
  ZINC_DEVICE SliceSums run(const float* q, uint64_t q_stride, const PagedCache& cache, float scale,
                            const KeyRange& range, unsigned first, unsigned stride) {
    float4 query[rows][chunks];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      load(query[r], q + min(r, range.last_row) * q_stride, cache.head_dim);
#pragma unroll
      for (unsigned c = 0; c < chunks; ++c) out[r][c] = make_float4(0, 0, 0, 0);
    }
    SliceSums lane = {attention_floor, 0.0f};
    const uint64_t end = range.end(rows - 1);
    for (uint64_t t = range.begin + first * keys; t < end; t += uint64_t{stride} * keys) {
      if (t + keys <= range.first_end) {
        step<false>(lane, query, cache, scale, range, t);
      } else {
        step<true>(lane, query, cache, scale, range, t);
      }
    }
    lane.sum = warp_sum<row_lanes>(lane_id() % score_lanes == 0 ? lane.sum : 0.0f);
    return lane;
  }

 private:
  // `ragged`: some row must not see some key of the group. A value that a row does not attend to must not touch its
  // output even with weight 0, as it may be NaN.
  template <bool ragged>
  ZINC_DEVICE void step(SliceSums& lane, const float4 (&query)[rows][chunks], const PagedCache& cache, float scale,
                        const KeyRange& range, uint64_t t) {
    const uint64_t end = range.end(rows - 1);
    uint64_t cache_row[keys];
    float partial[rows * keys];
#pragma unroll
    for (unsigned j = 0; j < keys; ++j) {
      // A key past the end repeats the first of the group, which exists.
      cache_row[j] = cache.row(static_cast<uint32_t>(!ragged || t + j < end ? t + j : t));
      float4 key[chunks];
      load(key, cache.k + cache_row[j], cache.head_dim);
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        float sum = 0.0f;
#pragma unroll
        for (unsigned c = 0; c < chunks; ++c) sum += dot(query[r][c], key[c]);
        partial[r * keys + j] = sum;
      }
    }
    const float score = scale * warp_sums(partial);
    const bool attended = !ragged || t + lane_id() % row_lanes / score_lanes < range.end(lane_id() / row_lanes);

    // The maximum is never -infinity, so the exponents are NaN only for a NaN score or a score of +infinity, which the
    // contract wants to see in the sum and the output.
    const float new_max = fmaxf(lane.max, warp_max<row_lanes>(attended ? score : attention_floor));
    const float shrink = expf(lane.max - new_max);
    const float weight = attended ? expf(score - new_max) : 0.0f;
    lane.max = new_max;
    lane.sum = fmaf(lane.sum, shrink, weight);
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const float row_shrink = __shfl_sync(full_warp, shrink, r * row_lanes);
#pragma unroll
      for (unsigned c = 0; c < chunks; ++c) out[r][c] = scaled(out[r][c], row_shrink);
    }
#pragma unroll
    for (unsigned j = 0; j < keys; ++j) {
      float4 value[chunks];
      load(value, cache.v + cache_row[j], cache.head_dim);
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        const float row_weight = __shfl_sync(full_warp, weight, r * row_lanes + j * score_lanes);
        if (ragged && t + j >= range.end(r)) continue;
#pragma unroll
        for (unsigned c = 0; c < chunks; ++c) out[r][c] = add_scaled(out[r][c], row_weight, value[c]);
      }
    }
  }
};

// How a block's warps share the work: query_warps groups of query rows, for each of which key_warps warps take turns at
// the groups of keys.
template <unsigned query_warps_, unsigned key_warps_>
struct WarpGrid {
  static constexpr unsigned query_warps = query_warps_;
  static constexpr unsigned key_warps = key_warps_;
  static constexpr unsigned warps = query_warps * key_warps;
};

// Attends with the rows first_row .. of the block; warp group g owns `rows` of them. `query_rows` gives for group g the
// query pointer, and the keys that its rows attend to. The results of a group's warps are combined in warp order.
// `shared` holds warps * rows * (head_dim + 2) floats, 16-byte aligned. Calls store(row of the block, d, O[d], sums)
// for every existing row and d < head_dim. Every thread of the block must call this; it contains one barrier.
template <class Grid, unsigned chunks, unsigned rows, unsigned keys, class Store>
ZINC_DEVICE void attend(const float* q, uint64_t q_stride, uint32_t block_rows, const PagedCache& cache, float scale,
                        const KeyRange& block_range, float* shared, Store store) {
  const uint32_t head_dim = cache.head_dim;
  const unsigned group = warp_id() / Grid::key_warps;
  const uint32_t group_row = group * rows;
  float* const warp_out = shared;
  float* const warp_max = shared + Grid::warps * rows * head_dim;
  float* const warp_total = warp_max + Grid::warps * rows;

  if (group_row < block_rows) {
    const KeyRange range = {block_range.begin, block_range.end(group_row),
                            min(rows, block_range.last_row + 1 - group_row) - 1};
    WarpAttention<chunks, rows, keys> warp;
    const SliceSums lane =
        warp.run(q + group_row * q_stride, q_stride, cache, scale, range, warp_id() % Grid::key_warps, Grid::key_warps);
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
      for (unsigned c = 0; c < chunks; ++c) {
        const unsigned d = warp.element(c);
        if (d < head_dim) {
          *reinterpret_cast<float4*>(warp_out + (warp_id() * rows + r) * head_dim + d) = warp.out[r][c];
        }
      }
    }
    if (lane_id() % warp.row_lanes == 0) {
      warp_max[warp_id() * rows + lane_id() / warp.row_lanes] = lane.max;
      warp_total[warp_id() * rows + lane_id() / warp.row_lanes] = lane.sum;
    }
  }
  __syncthreads();

  for (uint32_t i = threadIdx.x; i < block_rows * head_dim; i += Grid::warps * warp_size) {
    const uint32_t row = i / head_dim;
    const uint32_t d = i % head_dim;
    // The row's results lie `rows` apart, one per warp of its group.
    const uint32_t first = row / rows * Grid::key_warps * rows + row % rows;
    SliceSums all = {attention_floor, 0.0f};
#pragma unroll
    for (unsigned w = 0; w < Grid::key_warps; ++w) all.max = fmaxf(all.max, warp_max[first + w * rows]);
    float sum = 0.0f;
#pragma unroll
    for (unsigned w = 0; w < Grid::key_warps; ++w) {
      const uint32_t at = first + w * rows;
      const float weight = expf(warp_max[at] - all.max);
      all.sum = fmaf(weight, warp_total[at], all.sum);
      sum = fmaf(weight, warp_out[at * head_dim + d], sum);
    }
    store(row, d, sum, all);
  }
}

}  // namespace zinc
