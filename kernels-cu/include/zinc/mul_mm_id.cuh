// Matrix-matrix products of routed (token, slot) pairs with the matrices of their experts.
#pragma once

#include "zinc/mul_mm.cuh"

namespace zinc {

// The id table: the expert of slot s of token t is ids[t * pitch + s].
struct IdTable {
  const uint32_t* ids;
  uint32_t slots;
  uint32_t tokens;
  uint32_t pitch;

  ZINC_DEVICE uint64_t pairs() const { return uint64_t{tokens} * slots; }
};

// The tokens of up to `count` pairs of one expert, by the place of a pair in the list.
struct ListedTokens {
  const uint32_t* tokens;
  uint32_t count;
  const float* first;
  uint32_t stride;

  ZINC_DEVICE const float* columns(uint32_t t) const { return first + uint64_t{tokens[t]} * stride; }
  ZINC_DEVICE bool aligned() const { return is_aligned(first, sizeof(float4)) && stride % 4 == 0; }
};

// A warp's part of the pairs in the order of the table, 32 at a time: visit(token, slot, whether it is one of
// `expert`).
template <unsigned warps, class Visit>
ZINC_DEVICE void for_pairs(const IdTable& table, uint32_t expert, Visit visit) {
  const uint64_t rounds = (table.pairs() - 1) / (warps * warp_size) + 1;  // of each warp
  const uint64_t first = warp_id() * rounds * warp_size + lane_id();
  uint64_t token = first / table.slots;
  uint32_t slot = static_cast<uint32_t>(first % table.slots);
  const uint32_t tokens_on = warp_size / table.slots;
  const uint32_t slots_on = warp_size % table.slots;
  // Many loads in flight together.
#pragma unroll 8
  for (uint64_t i = 0; i < rounds; ++i) {
    visit(static_cast<uint32_t>(token), slot,
          token < table.tokens && __ldg(table.ids + token * table.pitch + slot) == expert);
    token += tokens_on;
    slot += slots_on;
    if (slot >= table.slots) {
      slot -= table.slots;
      ++token;
    }
  }
}

// Lists the pairs of `expert` in the order of the table, those from the `skip`-th on, up to `size`: add(place, token,
// slot); returns their number. All threads of the block call it and get it. It ends with a barrier; what `add` writes,
// and `counts`, must be free before.
template <unsigned size, unsigned warps, class Add>
ZINC_DEVICE uint32_t list_pairs(uint32_t (&counts)[warps], const IdTable& table, uint32_t expert, uint32_t skip,
                                Add add) {
  uint32_t count = 0;
  for_pairs<warps>(table, expert,
                   [&](uint32_t, uint32_t, bool mine) { count += __popc(__ballot_sync(full_warp, mine)); });
  if (lane_id() == 0) counts[warp_id()] = count;
  __syncthreads();
  uint32_t place = 0;
  uint32_t found = 0;
#pragma unroll
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp_id()) place += counts[w];
    found += counts[w];
  }
  if (count > 0 && place < skip + size && place + count > skip) {
    for_pairs<warps>(table, expert, [&](uint32_t token, uint32_t slot, bool mine) {
      const uint32_t votes = __ballot_sync(full_warp, mine);
      const uint32_t at = place + __popc(votes & ((1u << lane_id()) - 1)) - skip;
      if (mine && at < size) add(at, token, slot);
      place += __popc(votes);
    });
  }
  __syncthreads();
  return found <= skip ? 0 : min(found - skip, size);
}

// d[t * batch_stride_d + s * stride_d + r] = row r of the expert of (t, s) times token t. Grid: x over row tiles, y
// over experts; the block finds the pairs of its expert itself, some tiles of Shape::tokens at a time, of which the
// blocks along z take turns. expert_count bounds the search. `bytes` is the size of the dynamic shared memory.
template <class Format, class Shape, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_id(const uint8_t* a, const float* b, float* d, const uint32_t* ids,
                           const uint32_t* expert_count, const Push& p) {
  using Tile = HalfTile<Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  static_assert(Shape::threads >= Shape::tokens);
  constexpr unsigned list_tiles = 8;
  constexpr unsigned list_size = list_tiles * Shape::tokens;
  ZINC_DYNAMIC_SHARED(Tile, tile);
  ZINC_SHARED(uint32_t[2], limits);
  // Of the tile, and of the list.
  ZINC_SHARED(uint64_t[Shape::tokens], places);
  ZINC_SHARED(uint32_t[Shape::tokens], tokens);
  ZINC_SHARED(uint64_t[list_size], list_places);
  ZINC_SHARED(uint32_t[list_size], list_tokens);
  ZINC_SHARED(uint32_t[1], listed);
  ZINC_SHARED(uint32_t[Shape::threads / warp_size], counts);
  const IdTable table{ids + p.ids_offset, p.nei0, p.nei1, p.nbi1};
  const uint32_t row = blockIdx.x * Shape::matrix_rows;
  const auto finish = [&](uint32_t at_row, uint32_t token, const float (&sums)[1]) {
    d[places[token] + at_row] = sums[0];
  };
  if (table.pairs() == 0) return;
  for (uint32_t expert = blockIdx.y; expert < p.n_experts; expert += gridDim.y) {
    const uint8_t* const matrix[] = {a + p.a_offset + uint64_t{expert} * p.batch_stride_a};
    bool lists = true;  // whether the next tile is not in the list
    for (uint32_t next = blockIdx.z * Shape::tokens; next < expert_count[expert]; next += gridDim.z * Shape::tokens) {
      __syncthreads();  // the last readers of the list are done
      if (lists) {
        const auto add = [&](uint32_t place, uint32_t token, uint32_t slot) {
          list_tokens[place] = token;
          list_places[place] = p.d_offset + uint64_t{token} * p.batch_stride_d + uint64_t{slot} * p.stride_d;
        };
        const uint32_t found = list_pairs<list_size>(counts, table, expert, next / list_size * list_size, add);
        if (threadIdx.x == 0) listed[0] = found;
        __syncthreads();
      }
      const uint32_t first = next % list_size;
      if (listed[0] <= first) break;
      const uint32_t count = min(listed[0] - first, Shape::tokens);
      if (threadIdx.x < count) {
        tokens[threadIdx.x] = list_tokens[first + threadIdx.x];
        places[threadIdx.x] = list_places[first + threadIdx.x];
      }
      __syncthreads();
      lists = first + gridDim.z * Shape::tokens >= list_size;
      const ListedTokens x{tokens, count, b + p.b_offset, p.stride_b};
      if (all_wide<Format>(matrix) && x.aligned()) {
        any_tile<true, Format, Shape>(*tile, limits, matrix, p.m, row, x, 0, p.k, finish);
      } else {
        any_tile<false, Format, Shape>(*tile, limits, matrix, p.m, row, x, 0, p.k, finish);
      }
    }
  }
}

}  // namespace zinc
