// Matrix-matrix products of routed (token, slot) pairs with the matrices of their experts.
#pragma once

#include "zinc/mul_mm.cuh"

namespace zinc {

// The id table: the expert of pair t * slots + s is ids[t * pitch + s].
struct IdTable {
  const uint32_t* ids;
  uint32_t slots;
  uint32_t tokens;
  uint32_t pitch;

  ZINC_DEVICE uint64_t pairs() const { return uint64_t{tokens} * slots; }
  ZINC_DEVICE uint32_t expert(uint64_t pair) const { return __ldg(ids + pair / slots * pitch + pair % slots); }
};

// The tokens of up to `count` pairs of one expert, by the place of a pair in the list.
struct ListedTokens {
  const uint32_t* tokens;
  uint32_t count;
  const float* first;
  uint64_t stride;

  ZINC_DEVICE const float* columns(uint32_t t) const { return first + tokens[t] * stride; }
  ZINC_DEVICE bool aligned() const { return is_aligned(first, sizeof(float4)) && stride % 4 == 0; }
};

// Lists the pairs of `expert` in table order, those from the `skip`-th on, as many as fit; returns their number. All
// threads of the block call it and get it. It ends with a barrier; the list and `counts` must be free before.
template <unsigned threads, unsigned size>
ZINC_DEVICE uint32_t list_pairs(uint64_t (&pairs)[size], uint32_t (&counts)[threads / warp_size], const IdTable& table,
                                uint32_t expert, uint64_t skip) {
  uint64_t found = 0;
  for (uint64_t start = 0; start < table.pairs() && found < skip + size; start += threads) {
    const uint64_t pair = start + threadIdx.x;
    const bool mine = pair < table.pairs() && table.expert(pair) == expert;
    const uint32_t votes = __ballot_sync(full_warp, mine);
    if (lane_id() == 0) counts[warp_id()] = static_cast<uint32_t>(__popc(votes));
    __syncthreads();
    uint64_t place = found + static_cast<uint32_t>(__popc(votes & ((1u << lane_id()) - 1)));
#pragma unroll
    for (unsigned w = 0; w < threads / warp_size; ++w) {
      if (w < warp_id()) place += counts[w];
      found += counts[w];
    }
    if (mine && place >= skip && place < skip + size) pairs[place - skip] = pair;
    __syncthreads();
  }
  return found <= skip ? 0 : static_cast<uint32_t>(found - skip < size ? found - skip : size);
}

// d[t * batch_stride_d + s * stride_d + r] = row r of the expert of (t, s) times token t. Grid: x over row tiles, y
// over experts; the block finds the pairs of its expert itself, Shape::tokens at a time. expert_count bounds the
// search. `bytes` is the size of the dynamic shared memory.
template <class Format, class Shape, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_id(const uint8_t* a, const float* b, float* d, const uint32_t* ids,
                           const uint32_t* expert_count, const Push& p) {
  using Tile = HalfTile<Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  ZINC_SHARED(uint32_t[2], limits);
  ZINC_SHARED(uint64_t[Shape::tokens], pairs);
  ZINC_SHARED(uint64_t[Shape::tokens], places);
  ZINC_SHARED(uint32_t[Shape::tokens], tokens);
  ZINC_SHARED(uint32_t[Shape::threads / warp_size], counts);
  const IdTable table{ids + p.ids_offset, p.nei0, p.nei1, p.nbi1};
  const uint32_t row = blockIdx.x * Shape::matrix_rows;
  const auto finish = [&](uint32_t at_row, uint32_t token, const float (&sums)[1]) {
    d[places[token] + at_row] = sums[0];
  };
  for (uint32_t expert = blockIdx.y; expert < p.n_experts; expert += gridDim.y) {
    const uint8_t* const matrix[] = {a + p.a_offset + uint64_t{expert} * p.batch_stride_a};
    for (uint64_t skip = 0; skip < expert_count[expert]; skip += Shape::tokens) {
      __syncthreads();  // the last readers of the list are done
      const uint32_t listed = list_pairs<Shape::threads>(pairs, counts, table, expert, skip);
      if (listed == 0) break;
      for (unsigned i = threadIdx.x; i < listed; i += Shape::threads) {
        tokens[i] = static_cast<uint32_t>(pairs[i] / p.nei0);
        places[i] = p.d_offset + uint64_t{tokens[i]} * p.batch_stride_d + pairs[i] % p.nei0 * p.stride_d;
      }
      __syncthreads();
      const ListedTokens x{tokens, listed, b + p.b_offset, p.stride_b};
      if (all_wide<Format>(matrix) && x.aligned()) {
        any_tile<true, Format, Shape>(*tile, limits, matrix, p.m, row, x, 0, p.k, finish);
      } else {
        any_tile<false, Format, Shape>(*tile, limits, matrix, p.m, row, x, 0, p.k, finish);
      }
    }
  }
}

}  // namespace zinc
