// Causal attention of consecutive query tokens over the paged cache, tile by tile of keys.
#pragma once
#include "zinc/async_copy.cuh"
#include "zinc/attention.cuh"
#include "zinc/attention_mma.cuh"

namespace zinc {

// A block of `warps` warps attends with consecutive queries of one head, `rows` of them a warp, to tiles of `keys` keys
// that all warps share. For the scores a warp's lanes are row groups of key_lanes lanes: a lane has every key_lanes-th
// key of the tile for the rows of its group. For the outputs it owns the elements 4 * lane .. 4 * lane + 3 of each 128
// of a head, `quads` times, of all rows; elements past head_dim are never stored.
template <unsigned warps, unsigned quads, unsigned keys>
struct BatchAttention {
  static constexpr unsigned rows = 8;
  static constexpr unsigned key_lanes = keys < 16 ? keys : 16;
  static constexpr unsigned row_groups = warp_size / key_lanes;
  static constexpr unsigned group_rows = rows / row_groups;
  static constexpr unsigned lane_keys = keys / key_lanes;
  static constexpr unsigned row_quads = quads * warp_size;
  // One quad more, so that the same quad of eight keys lies in different banks.
  static constexpr unsigned key_pitch = row_quads + 1;
  // As many values at once as there are registers for.
  static constexpr unsigned value_unroll = 4 / quads;
  static constexpr unsigned score_unroll = 4 / quads;
  static_assert(lane_keys * key_lanes == keys && keys <= warp_size, "a lane looks up one cache row of a tile");

  struct Tile {
    float4 k[keys][key_pitch];
    float4 v[keys][row_quads];
    float4 weights[warps][keys][rows / 4];
  };

  // The queries of the block are number first_query .. first_query + present - 1, at q with query_stride between them.
  // Query 0 sees the keys up to, and including, seq_start. Calls store(row of the block, d, O[d .. d + 3], sums) for
  // every present row and every d that is a multiple of four.
  template <class Store>
  ZINC_DEVICE static void run(const float* q, uint64_t query_stride, uint64_t first_key_end, uint32_t present,
                              const PagedCache& cache, float scale, Tile& tile, Store store) {
    const unsigned group = lane_id() / key_lanes;
    const unsigned key_lane = lane_id() % key_lanes;
    const uint32_t warp_row = warp_id() * rows;
    const uint64_t end = first_key_end + present - 1;
    const float4* query[group_rows];
#pragma unroll
    for (unsigned i = 0; i < group_rows; ++i) {
      const uint32_t row = min(warp_row + group * group_rows + i, present - 1);
      query[i] = reinterpret_cast<const float4*>(q + row * query_stride);
    }
    float4 out[rows][quads];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) out[r][c] = make_float4(0, 0, 0, 0);
    }
    SliceSums sums[group_rows];
#pragma unroll
    for (unsigned i = 0; i < group_rows; ++i) sums[i] = {attention_floor, 0.0f};

    uint64_t lane_row = row_of(cache, 0, end);
    fetch(tile.k, cache.k, lane_row, cache.head_dim);
    fetch(tile.v, cache.v, lane_row, cache.head_dim);
    for (uint64_t t = 0; t < end; t += keys) {
      const bool more = t + keys < end;
      if (more) lane_row = row_of(cache, t + keys, end);
      async_wait<1>();
      __syncthreads();
      float score[group_rows][lane_keys] = {};
      multiply(score, query, tile, key_lane, cache.head_dim / 4);
      __syncthreads();
      if (more) fetch(tile.k, cache.k, lane_row, cache.head_dim);
      if (!more) async_commit();

      // Row r of the warp sees the keys up to, but excluding, row_end + r.
      const uint64_t row_end = first_key_end + warp_row;
      const bool ragged = t + keys > row_end || warp_row + rows > present;
      const auto sees = [=](unsigned r, unsigned key) { return !ragged || t + key < min(row_end + r, end); };
#pragma unroll
      for (unsigned i = 0; i < group_rows; ++i) {
#pragma unroll
        for (unsigned j = 0; j < lane_keys; ++j) {
          score[i][j] = sees(group * group_rows + i, key_lane + j * key_lanes) ? scale * score[i][j] : hidden_score;
        }
      }
      weigh(score, sums, out);
#pragma unroll
      for (unsigned j = 0; j < lane_keys; ++j) {
        float* const weights = reinterpret_cast<float*>(tile.weights[warp_id()][key_lane + j * key_lanes]);
#pragma unroll
        for (unsigned i = 0; i < group_rows; ++i) weights[group * group_rows + i] = score[i][j];
      }
      __syncwarp();

      async_wait<1>();
      __syncthreads();
      if (ragged) {
        for (unsigned key = 0; key < keys; ++key) {
          // A value that a row does not see must not touch its output even with weight 0, as it may be NaN.
          add_value(out, tile, key, [&](unsigned r) { return sees(r, key); });
        }
      } else {
#pragma unroll value_unroll
        for (unsigned key = 0; key < keys; ++key) add_value(out, tile, key, [](unsigned) { return true; });
      }
      __syncthreads();
      if (more) fetch(tile.v, cache.v, lane_row, cache.head_dim);
      if (!more) async_commit();
    }

#pragma unroll
    for (unsigned i = 0; i < group_rows; ++i) sums[i].sum = warp_sum<key_lanes>(sums[i].sum);
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const unsigned lane = r / group_rows * key_lanes;
      const SliceSums row = {__shfl_sync(full_warp, sums[r % group_rows].max, lane),
                             __shfl_sync(full_warp, sums[r % group_rows].sum, lane)};
      if (warp_row + r >= present) continue;
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) {
        const unsigned d = 4 * (c * warp_size + lane_id());
        if (d < cache.head_dim) store(warp_row + r, d, out[r][c], row);
      }
    }
  }

 private:
  // Cache row of the lane's key of the tile at t; a key past the end repeats the last one.
  ZINC_DEVICE static uint64_t row_of(const PagedCache& cache, uint64_t t, uint64_t end) {
    return cache.row(static_cast<uint32_t>(min(t + lane_id() % keys, end - 1)));
  }

  template <unsigned pitch>
  ZINC_DEVICE static void fetch(float4 (&to)[keys][pitch], const float* from, uint64_t lane_row, uint32_t head_dim) {
#pragma unroll
    for (unsigned i = 0; i < keys / warps; ++i) {
      const unsigned key = i * warps + warp_id();
      const float* const row = from + __shfl_sync(full_warp, lane_row, key) + 4 * lane_id();
      const SharedPlace place = shared_place(&to[key][0] + lane_id());
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) {
        if (4 * (c * warp_size + lane_id()) < head_dim) {
          async_copy<16>(place + c * warp_size * sizeof(float4), row + 4 * c * warp_size);
        }
      }
    }
    async_commit();
  }

  ZINC_DEVICE static void multiply(float (&score)[group_rows][lane_keys], const float4* const (&query)[group_rows],
                                   const Tile& tile, unsigned key_lane, uint32_t head_quads) {
#pragma unroll score_unroll
    for (uint32_t d = 0; d < head_quads; ++d) {
      float4 a[group_rows];
      float4 b[lane_keys];
#pragma unroll
      for (unsigned i = 0; i < group_rows; ++i) a[i] = __ldg(query[i] + d);
#pragma unroll
      for (unsigned j = 0; j < lane_keys; ++j) b[j] = tile.k[key_lane + j * key_lanes][d];
#pragma unroll
      for (unsigned i = 0; i < group_rows; ++i) {
#pragma unroll
        for (unsigned j = 0; j < lane_keys; ++j) score[i][j] = add_dot(score[i][j], a[i], b[j]);
      }
    }
  }

  // Turns the scores into weights; moves the sums and the outputs to a new maximum where there is one.
  ZINC_DEVICE static void weigh(float (&score)[group_rows][lane_keys], SliceSums (&sums)[group_rows],
                                float4 (&out)[rows][quads]) {
    float new_max[group_rows];
    bool moved = false;
#pragma unroll
    for (unsigned i = 0; i < group_rows; ++i) {
      float max = score[i][0];
#pragma unroll
      for (unsigned j = 1; j < lane_keys; ++j) max = fmaxf(max, score[i][j]);
      new_max[i] = fmaxf(sums[i].max, warp_max<key_lanes>(max));
      moved |= new_max[i] > sums[i].max;
    }
    if (__any_sync(full_warp, moved)) {
      float shrink[group_rows];
#pragma unroll
      for (unsigned i = 0; i < group_rows; ++i) {
        shrink[i] = expf(sums[i].max - new_max[i]);
        sums[i] = {new_max[i], sums[i].sum * shrink[i]};
      }
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        const float row_shrink = __shfl_sync(full_warp, shrink[r % group_rows], r / group_rows * key_lanes);
#pragma unroll
        for (unsigned c = 0; c < quads; ++c) out[r][c] = scaled(out[r][c], row_shrink);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < group_rows; ++i) {
#pragma unroll
      for (unsigned j = 0; j < lane_keys; ++j) {
        // The maximum is never -infinity, so the exponent is NaN only for a NaN score or a score of +infinity, which
        // the contract wants to see in the sum and the output.
        score[i][j] = expf(score[i][j] - sums[i].max);
        sums[i].sum += score[i][j];
      }
    }
  }

  template <class Sees>
  ZINC_DEVICE static void add_value(float4 (&out)[rows][quads], const Tile& tile, unsigned key, Sees sees) {
    float4 value[quads];
#pragma unroll
    for (unsigned c = 0; c < quads; ++c) value[c] = tile.v[key][c * warp_size + lane_id()];
#pragma unroll
    for (unsigned g = 0; g < rows / 4; ++g) {
      const float4 w = tile.weights[warp_id()][key][g];
      const float weight[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned r = 4 * g + i;
        if (!sees(r)) continue;
#pragma unroll
        for (unsigned c = 0; c < quads; ++c) out[r][c] = add_scaled(out[r][c], weight[i], value[c]);
      }
    }
  }
};

// The same for heads of head_dim elements on the tensor cores, with tiles of sixteen keys.
template <unsigned warps, unsigned head_dim>
struct BatchMma {
  using Attention = MmaAttention<head_dim>;
  static constexpr unsigned rows = Attention::rows;
  static constexpr unsigned keys = Attention::keys;
  // Eight lanes read two keys' four quads, or four keys' two: in different banks.
  static constexpr unsigned key_pitch = Attention::head_quads + 4;
  static constexpr unsigned value_pitch = Attention::head_quads + 2;
  static_assert(keys % warps == 0, "a warp copies whole rows");

  struct Tile {
    float4 k[keys][key_pitch];
    float4 v[keys][value_pitch];
    typename Attention::Queries queries[warps];
    typename Attention::Weights weights[warps];
  };

  template <class Store>
  ZINC_DEVICE static void run(const float* q, uint64_t query_stride, uint64_t first_key_end, uint32_t present,
                              const PagedCache& cache, float scale, Tile& tile, Store store) {
    const uint64_t end = first_key_end + present - 1;
    const uint32_t warp_row = warp_id() * rows;
    const bool has_rows = warp_row < present;
    const uint32_t last = has_rows ? min(rows, present - warp_row) - 1 : 0;
    const float* const queries = q + (has_rows ? warp_row : 0) * query_stride;
    // Row r of the warp sees the keys up to, but excluding, row_end + min(r, last).
    const uint64_t row_end = first_key_end + warp_row;
    typename Attention::Weights& weights = tile.weights[warp_id()];
    Attention::split_queries(tile.queries[warp_id()], queries, query_stride, last, lane_id(), warp_size);
    Attention attention;
    attention.clear();
    const auto key_quad = [&](unsigned key, unsigned i) { return tile.k[key][i]; };
    const auto value_quad = [&](unsigned key, unsigned i) { return tile.v[key][i]; };

    uint64_t lane_row = row_of(cache, 0, end);
    fetch(tile.k, cache.k, lane_row);
    fetch(tile.v, cache.v, lane_row);
    for (uint64_t t = 0; t < end; t += keys) {
      const bool more = t + keys < end;
      const uint64_t next_row = more ? row_of(cache, t + keys, end) : 0;
      const bool works = has_rows && t < row_end + last;
      const auto sees = [=](unsigned r, unsigned key) { return t + key < row_end + min(r, last); };
      const bool all_seen = t + keys <= row_end;
      async_wait<1>();
      __syncthreads();
      float score[4];
      if (works) {
        typename Attention::Sums sums = {};
        Attention::template multiply_keys<Attention::head_quads>(sums, key_quad, tile.queries[warp_id()], 0);
        if (!Attention::join(score, sums)) {
          Attention::multiply_plainly(score, queries, query_stride, last, cache.k, lane_row);
        }
      }
      __syncthreads();
      if (more) fetch(tile.k, cache.k, next_row);
      if (!more) async_commit();
      if (works) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          const bool seen = all_seen || sees(2 * Attention::part() + i % 2, i / 2 * 8 + Attention::group());
          score[i] = seen ? scale * score[i] : hidden_score;
        }
        attention.weigh(score);
        Attention::store_weights(weights, score);
      }
      async_wait<1>();
      __syncthreads();
      if (works && all_seen) {
        attention.template add_values<Attention::head_quads>(value_quad, weights, 0);
      } else if (works) {
        attention.add_seen_values(value_quad, weights, sees);
      }
      __syncthreads();
      if (more) fetch(tile.v, cache.v, next_row);
      if (!more) async_commit();
      lane_row = next_row;
    }

    attention.reduce_sums();
    attention.for_each_output([&](unsigned r, unsigned quad, float4 o) {
      if (warp_row + r < present)
        store(warp_row + r, 4 * quad, o, SliceSums{attention.max[r % 2], attention.sum[r % 2]});
    });
  }

 private:
  // First element of the row of key t + lane % keys; a key past the end repeats the last one.
  ZINC_DEVICE static uint64_t row_of(const PagedCache& cache, uint64_t t, uint64_t end) {
    return cache.row(static_cast<uint32_t>(min(t + lane_id() % keys, end - 1)));
  }

  // The warp's share of copying a tile's rows.
  template <unsigned pitch>
  ZINC_DEVICE static void fetch(float4 (&to)[keys][pitch], const float* from, uint64_t lane_row) {
    constexpr unsigned quads = Attention::head_quads;
#pragma unroll
    for (unsigned i = 0; i < keys / warps; ++i) {
      const unsigned key = i * warps + warp_id();
      const float* const row = from + __shfl_sync(full_warp, lane_row, key) + 4 * lane_id();
      const SharedPlace place = shared_place(&to[key][0] + lane_id());
#pragma unroll
      for (unsigned c = 0; c < quads; c += warp_size) {
        if (c + lane_id() < quads) async_copy<16>(place + c * sizeof(float4), row + 4 * c);
      }
    }
    async_commit();
  }
};

// Block (query tile, head) of a grid with heads fastest and the last queries, which see most keys, first.
template <class Attention, unsigned warps, class Push>
ZINC_DEVICE void attend_batch(const float* q, const float* k_cache, const float* v_cache, const uint32_t* page_table,
                              float* out, const float* sinks, const Push& p) {
  constexpr uint32_t block_queries = warps * Attention::rows;
  ZINC_DYNAMIC_SHARED(typename Attention::Tile, tile);
  const uint32_t head = blockIdx.x % p.n_heads;
  const uint64_t first_query = uint64_t{(gridDim.x - 1 - blockIdx.x) / p.n_heads} * block_queries;
  const uint32_t present = static_cast<uint32_t>(min(uint64_t{block_queries}, p.n_queries - first_query));
  const uint64_t query_stride = uint64_t{p.n_heads} * p.head_dim;
  const uint64_t first_element = first_query * query_stride + uint64_t{head} * p.head_dim;
  const PagedCache cache = {
      k_cache, v_cache, page_table, p.page_size, p.n_kv_heads, head / (p.n_heads / p.n_kv_heads), p.head_dim};
  const float sink = sinks[uint64_t{p.sink_offset} + head];
  const auto store = [=](uint32_t row, uint32_t d, float4 o, SliceSums sums) {
    *reinterpret_cast<float4*>(out + first_element + row * query_stride + d) = scaled(o, output_factor(sums, sink));
  };
  Attention::run(q + first_element, query_stride, p.seq_start + first_query + 1, present, cache,
                 attention_scale(p.attn_scale_bits, p.head_dim), *tile, store);
}

}  // namespace zinc
