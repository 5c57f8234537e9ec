// Decode attention over the paged KV cache. Grid: x over (query head, slice), head-major; the block owns one query head
// and one of the n_i_chunks slices of the sequence. Warps take turns at groups of keys, a lane owns four elements of
// each 128 of a head, and the block combines its warps' sums at the end.
//@ tile = { warps = 8 }
//@ block = ["32 * warps"]
//@ grid = ["n_heads * n_i_chunks"]
//@ shared = "warps * (head_dim + 2) * 4"
#include "zinc/flash_attn.h"

#include "zinc/attention.cuh"

ZINC_KERNEL void __launch_bounds__(32 * flash_attn_tile::warps, 1)
    flash_attn(const float* __restrict__ q, const float* __restrict__ k_cache, const float* __restrict__ v_cache,
               const uint32_t* __restrict__ page_table, float* __restrict__ out, const float* __restrict__ sinks,
               flash_attn_push p) {
  using Grid = zinc::WarpGrid<1, flash_attn_tile::warps>;
  ZINC_DYNAMIC_SHARED(float, shared);
  const uint32_t head = blockIdx.x / p.n_i_chunks;
  const uint32_t slice = blockIdx.x % p.n_i_chunks;
  const zinc::KeyRange range = {uint64_t{slice} * p.seq_len / p.n_i_chunks,
                                (uint64_t{slice} + 1) * p.seq_len / p.n_i_chunks, 0};
  const zinc::PagedCache cache = {
      k_cache, v_cache, page_table, p.page_size, p.n_kv_heads, head / (p.n_heads / p.n_kv_heads), p.head_dim};
  const float scale = zinc::attention_scale(p.attn_scale_bits, p.head_dim);
  const float* const query = q + uint64_t{head} * p.head_dim;
  const bool whole = p.n_i_chunks == 1;
  float* const row = out + uint64_t{blockIdx.x} * p.head_dim;
  float* const slice_sums = out + uint64_t{gridDim.x} * p.head_dim + 2 * uint64_t{blockIdx.x};

  const auto store = [=](uint32_t, uint32_t d, float o, zinc::SliceSums sums) {
    if (whole) {
      row[d] = o * zinc::output_factor(sums, sinks[uint64_t{p.sink_offset} + head]);
      return;
    }
    row[d] = o;
    if (d == 0) {
      slice_sums[0] = sums.max;
      slice_sums[1] = sums.sum;
    }
  };
  // The registers of a lane are sized for 128, 256 or 512 elements a head.
  if (p.head_dim <= 128) {
    zinc::attend<Grid, 1, 1, 8>(query, 0, 1, cache, scale, range, shared, store);
  } else if (p.head_dim <= 256) {
    zinc::attend<Grid, 2, 1, 8>(query, 0, 1, cache, scale, range, shared, store);
  } else {
    zinc::attend<Grid, 4, 1, 4>(query, 0, 1, cache, scale, range, shared, store);
  }
}
