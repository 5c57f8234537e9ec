// The block of causal batched attention: which queries it owns, and the instance for the head size.
#pragma once
#include "zinc/attention.cuh"

namespace zinc {

// Block (query group, head) of a grid with heads fastest. A group has Grid::query_warps * rows consecutive queries;
// heads of more than 256 elements need twice the registers, so a warp takes only long_rows of them and the block two
// rounds.
template <class Grid, unsigned rows, unsigned long_rows, class Push>
ZINC_DEVICE void attend_batch(const float* __restrict__ q, const float* __restrict__ k_cache,
                              const float* __restrict__ v_cache, const uint32_t* __restrict__ page_table,
                              float* __restrict__ out, const float* __restrict__ sinks, const Push& p) {
  static_assert(rows % long_rows == 0, "the rounds of long heads cover the block's queries");
  constexpr uint32_t block_queries = Grid::query_warps * rows;
  ZINC_DYNAMIC_SHARED(float, shared);
  const uint32_t head = blockIdx.x % p.n_heads;
  const uint64_t first_query = uint64_t{blockIdx.x / p.n_heads} * block_queries;
  const uint64_t query_stride = uint64_t{p.n_heads} * p.head_dim;
  const PagedCache cache = {
      k_cache, v_cache, page_table, p.page_size, p.n_kv_heads, head / (p.n_heads / p.n_kv_heads), p.head_dim};
  const float scale = attention_scale(p.attn_scale_bits, p.head_dim);
  const float sink = sinks[uint64_t{p.sink_offset} + head];

  const unsigned round_queries = p.head_dim <= 256 ? block_queries : Grid::query_warps * long_rows;
  for (unsigned done = 0; done < block_queries; done += round_queries) {
    const uint64_t query = first_query + done;
    if (query >= p.n_queries) break;
    const uint32_t present = static_cast<uint32_t>(min(uint64_t{round_queries}, p.n_queries - query));
    const KeyRange range = {0, p.seq_start + query + 1, present - 1};
    const uint64_t first_element = query * query_stride + uint64_t{head} * p.head_dim;
    const auto store = [=](uint32_t row, uint32_t d, float o, SliceSums sums) {
      out[first_element + row * query_stride + d] = o * output_factor(sums, sink);
    };
    // The round before still reads what this one overwrites.
    if (done > 0) __syncthreads();
    const float* const queries = q + first_element;
    if (p.head_dim <= 128) {
      attend<Grid, 1, rows, 8>(queries, query_stride, present, cache, scale, range, shared, store);
    } else if (p.head_dim <= 256) {
      attend<Grid, 2, rows, 4>(queries, query_stride, present, cache, scale, range, shared, store);
    } else {
      attend<Grid, 4, long_rows, 4>(queries, query_stride, present, cache, scale, range, shared, store);
    }
  }
}

}  // namespace zinc
