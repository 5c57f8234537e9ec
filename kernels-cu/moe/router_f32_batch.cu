// f32 matrix times a batch of f32 vectors. Grid: x over (tile of `tokens` tokens, tile of `rows` rows, block of the
// cluster), the last fastest, with larger tiles from `many` tokens on; where whole steps of columns allow it on the
// tensor cores, else a warp owns 8 x 8 products at a time, a lane four consecutive columns of each 128 in all of them.
// By wgmma, tiles of `wide_rows` rows by `wide_tokens` tokens from `wide_many` tokens on, where a block's columns fit
// its shared memory and all clusters run at once. Up to `few` tokens: x over pairs of rows, a warp owns one row and all
// the tokens. Up to `few` rows: the same with rows and tokens exchanged.
#include "zinc/router_f32_batch.h"

#include "zinc/norm_matvec.cuh"
#include "zinc/split_tile.cuh"
#include "zinc/split_wgmma.cuh"

namespace {

using zinc::FloatRows;

// The sum of value[i] over the lanes of the warp, in lane i.
template <unsigned count>
ZINC_DEVICE float lane_of_sums(const float (&value)[count]) {
  if constexpr (count == 1) {
    return value[0];
  } else {
    constexpr unsigned half = count / 2;
    const bool upper = zinc::lane_id() & half;
    float folded[half];
#pragma unroll
    for (unsigned i = 0; i < half; ++i) {
      const float passed = upper ? value[i] : value[i + half];
      const float kept = upper ? value[i + half] : value[i];
      folded[i] = kept + __shfl_xor_sync(zinc::full_warp, passed, half);
    }
    return lane_of_sums(folded);
  }
}

// Calls store(r, t, product) for the products of `rows` rows of A from first_a on with `tokens` rows of B from first_b
// on, by one warp. If not `whole`, rows of B past the end repeat the last one and are not stored.
template <unsigned rows, unsigned tokens, bool whole, class Store>
ZINC_DEVICE void multiply_part(const FloatRows& a, const FloatRows& b, uint64_t first_a, uint64_t first_b,
                               uint32_t columns, Store store) {
  const float* const row = a.data + first_a * a.pitch;
  const float* const vector = b.data + first_b * b.pitch;
  const uint64_t tokens_left = b.count - first_b;
  float sum[tokens * rows] = {};
#pragma unroll(rows == 1 && tokens == 1 ? 8 : 1)
  for (uint32_t i = zinc::lane_id(); i < columns / 4; i += zinc::warp_size) {
    // The addresses are stepped on from one another: kept apart, they would take the registers of the sums.
    float4 v[tokens];
    const float* at = vector + uint64_t{i} * 4;
#pragma unroll
    for (unsigned j = 0; j < tokens; ++j) {
      v[j] = *reinterpret_cast<const float4*>(at);
      if (whole || j + 1 < tokens_left) at += b.pitch;
    }
    at = row + uint64_t{i} * 4;
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const float4 w = *reinterpret_cast<const float4*>(at);
      at += a.pitch;
#pragma unroll
      for (unsigned j = 0; j < tokens; ++j) sum[j * rows + r] = zinc::dot4(w, v[j], sum[j * rows + r]);
    }
  }
  const auto store_one = [=](unsigned part, float total) {
    const uint64_t t = first_b + part / rows;
    if (whole || t < b.count) store(first_a + part % rows, t, total);
  };
  if constexpr (tokens * rows % zinc::warp_size == 0) {
#pragma unroll
    for (unsigned base = 0; base < tokens * rows; base += zinc::warp_size) {
      float part[zinc::warp_size];
#pragma unroll
      for (unsigned i = 0; i < zinc::warp_size; ++i) part[i] = sum[base + i];
      store_one(base + zinc::lane_id(), lane_of_sums(part));
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < tokens * rows; ++i) {
      const float total = zinc::warp_sum(sum[i]);
      if (zinc::lane_id() == 0) store_one(i, total);
    }
  }
}

// All products of the rows of A, one a warp of the grid, with the few rows of B.
template <unsigned few, class Store>
ZINC_DEVICE void multiply_few(const FloatRows& a, const FloatRows& b, uint32_t columns, Store store) {
  const uint64_t row = uint64_t{blockIdx.x} * zinc::block_warps() + zinc::warp_id();
  if (row >= a.count) return;
  if (b.count == 1) {
    multiply_part<1, 1, true>(a, b, row, 0, columns, store);
  } else {
    multiply_part<1, few, false>(a, b, row, 0, columns, store);
  }
}

// The rows of a cluster's tile, and no products on the tensor cores.
template <unsigned rows, unsigned tokens>
struct PlainTile {
  static constexpr unsigned rows_a = rows;
  static constexpr unsigned rows_b = tokens;
};

// The products of the cluster's tile: as `on_tensor_cores` has them if it can, else one after the other.
template <class Tile, class OnTensorCores, class Store>
ZINC_DEVICE void multiply_tile(const FloatRows& a, const FloatRows& b, uint32_t columns, OnTensorCores on_tensor_cores,
                               Store store) {
  const uint32_t tile = blockIdx.x / zinc::cluster_blocks();
  const uint32_t row_tiles = (a.count - 1) / Tile::rows_a + 1;
  const uint64_t first_a = uint64_t{tile % row_tiles} * Tile::rows_a;
  const uint64_t first_b = uint64_t{tile / row_tiles} * Tile::rows_b;
  if (on_tensor_cores(zinc::SplitPlace{a, b, first_a, first_b})) return;
  constexpr unsigned part = 8;
  constexpr unsigned row_parts = Tile::rows_a / part;
  constexpr unsigned parts = row_parts * (Tile::rows_b / part);
  const unsigned warps = zinc::cluster_blocks() * zinc::block_warps();
  for (unsigned i = zinc::cluster_rank() * zinc::block_warps() + zinc::warp_id(); i < parts; i += warps) {
    const uint64_t row = first_a + i % row_parts * part;
    const uint64_t token = first_b + i / row_parts * part;
    if (token >= b.count) continue;
    if (row + part <= a.count && token + part <= b.count) {
      multiply_part<part, part, true>(a, b, row, token, columns, store);
    } else {
      const uint64_t end = min(row + part, uint64_t{a.count});
      for (uint64_t r = row; r < end; ++r) multiply_part<1, part, false>(a, b, r, token, columns, store);
    }
  }
}

// The same on the tensor cores if `mma`, where they can.
template <bool mma, unsigned rows, unsigned tokens, class Store>
ZINC_DEVICE void multiply_tile(const FloatRows& a, const FloatRows& b, uint32_t columns, uint8_t* shared, Store store) {
  const auto on_tensor_cores = [&]([[maybe_unused]] const zinc::SplitPlace& place) {
    if constexpr (mma) {
      using Tile = zinc::SplitTile<rows, tokens>;
      auto& tile = *reinterpret_cast<typename Tile::Shared*>(shared);
      return columns % Tile::step == 0 && Tile::multiply(place, columns, tile, store);
    }
    return false;
  };
  multiply_tile<PlainTile<rows, tokens>>(a, b, columns, on_tensor_cores, store);
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(256, 1)
    router_f32_batch(const float* __restrict__ x, const float* __restrict__ weights, float* __restrict__ y,
                     router_f32_batch_push p) {
  zinc::wait_for_previous();
  using namespace router_f32_batch_tile;
  const FloatRows matrix = {weights, p.k, p.m};
  const FloatRows vectors = {x, p.stride_x, p.n_tokens};
  const auto store = [=](uint64_t r, uint64_t t, float sum) { y[t * p.stride_y + r] = sum; };
  const auto store_swapped = [=](uint64_t t, uint64_t r, float sum) { store(r, t, sum); };
  if (p.n_tokens <= few) return multiply_few<few>(matrix, vectors, p.k, store);
  if (p.m <= few) return multiply_few<few>(vectors, matrix, p.k, store_swapped);

  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  if constexpr (wide_tiles > 0) {
    using Tile = zinc::SplitWgmmaTile;
    static_assert(Tile::rows_a == wide_rows && Tile::rows_b == wide_tokens && Tile::unit == 64,
                  "as the launch has them");
    constexpr unsigned bytes = sizeof(Tile::Shared) + alignof(Tile::Shared) - 16;
    static_assert(bytes <= wide_bytes, "what the launch asks for");
    const uint64_t tiles = uint64_t{(p.m - 1) / wide_rows + 1} * ((p.n_tokens - 1) / wide_tokens + 1);
    if (p.n_tokens >= wide_many && p.k % Tile::unit == 0 && p.k <= wide_columns && tiles <= wide_tiles) {
      auto& tile = zinc::aligned_tile<Tile::Shared, bytes>(shared);
      const auto on_tensor_cores = [&](const zinc::SplitPlace& place) {
        return Tile::multiply(place, p.k, tile, store);
      };
      return multiply_tile<Tile>(matrix, vectors, p.k, on_tensor_cores, store);
    }
  }
  if constexpr (many_rows * many_tokens > rows * tokens) {
    if (p.n_tokens >= many) {
      return multiply_tile<(mma != 0), many_rows, many_tokens>(matrix, vectors, p.k, shared, store);
    }
  }
  multiply_tile<mma != 0, rows, tokens>(matrix, vectors, p.k, shared, store);
}
