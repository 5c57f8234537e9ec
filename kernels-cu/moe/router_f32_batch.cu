// f32 matrix times a batch of f32 vectors. Grid: x over (group of 4 * warp_tokens tokens, group of 4 * warp_rows rows),
// rows fastest so that the blocks of a token group run together; a warp owns one of the 4 x 4 parts of its block's
// products, a lane four consecutive columns of each 128 in all of them. Up to `few` tokens, where the matrix alone
// counts: x over pairs of rows, a warp owns one row and all the tokens.
//@ tile = { warp_rows = 8, warp_tokens = 8, few = 8 }
//@ block = ["512 - 448 * (1 - min(1, ceil_div(n_tokens, few) - 1))"]
//@ grid = ["max(ceil_div(n_tokens, 4 * warp_tokens) * ceil_div(m, 4 * warp_rows), (1 - min(1, ceil_div(n_tokens, few) - 1)) * ceil_div(m, 2))"]
//@ overlap = true
#include "zinc/router_f32_batch.h"

#include "zinc/norm_matvec.cuh"

namespace {

constexpr unsigned block_side = 4;  // parts of a block's products, in rows and in tokens

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

// The products of `rows` rows from first_row on with `tokens` tokens from first_token on. If not `whole`, tokens past
// the end repeat the last one and are not stored.
template <unsigned rows, unsigned tokens, bool whole>
ZINC_DEVICE void multiply_part(const float* __restrict__ x, const float* __restrict__ weights, float* __restrict__ y,
                               uint64_t first_row, uint64_t first_token, const router_f32_batch_push& p) {
  const float* const row = weights + first_row * p.k;
  const float* const vector = x + first_token * p.stride_x;
  const uint64_t tokens_left = p.n_tokens - first_token;
  float sum[tokens * rows] = {};
#pragma unroll(rows == 1 && tokens == 1 ? 8 : 1)
  for (uint32_t i = zinc::lane_id(); i < p.k / 4; i += zinc::warp_size) {
    // The addresses are stepped on from one another: kept apart, they would take the registers of the sums.
    float4 v[tokens];
    const float* at = vector + uint64_t{i} * 4;
#pragma unroll
    for (unsigned j = 0; j < tokens; ++j) {
      v[j] = *reinterpret_cast<const float4*>(at);
      if (whole || j + 1 < tokens_left) at += p.stride_x;
    }
    at = row + uint64_t{i} * 4;
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const float4 w = *reinterpret_cast<const float4*>(at);
      at += p.k;
#pragma unroll
      for (unsigned j = 0; j < tokens; ++j) sum[j * rows + r] = zinc::dot4(w, v[j], sum[j * rows + r]);
    }
  }
  const auto store = [=](unsigned part, float total) {
    const uint64_t token = first_token + part / rows;
    const uint64_t at = first_row + part % rows;
    if (whole || token < p.n_tokens) y[token * p.stride_y + at] = total;
  };
  if constexpr (tokens * rows % zinc::warp_size == 0) {
#pragma unroll
    for (unsigned base = 0; base < tokens * rows; base += zinc::warp_size) {
      float part[zinc::warp_size];
#pragma unroll
      for (unsigned i = 0; i < zinc::warp_size; ++i) part[i] = sum[base + i];
      store(base + zinc::lane_id(), lane_of_sums(part));
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < tokens * rows; ++i) {
      const float total = zinc::warp_sum(sum[i]);
      if (zinc::lane_id() == 0) store(i, total);
    }
  }
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(512, 1)
    router_f32_batch(const float* __restrict__ x, const float* __restrict__ weights, float* __restrict__ y,
                     router_f32_batch_push p) {
  zinc::wait_for_previous();
  using namespace router_f32_batch_tile;
  if (p.n_tokens <= few) {
    const uint64_t row = uint64_t{blockIdx.x} * zinc::block_warps() + zinc::warp_id();
    if (row >= p.m) return;
    if (p.n_tokens == 1) {
      multiply_part<1, 1, true>(x, weights, y, row, 0, p);
    } else {
      multiply_part<1, few, false>(x, weights, y, row, 0, p);
    }
    return;
  }
  const uint32_t row_groups = (p.m - 1) / (block_side * warp_rows) + 1;
  const uint64_t row = (uint64_t{blockIdx.x % row_groups} * block_side + zinc::warp_id() % block_side) * warp_rows;
  const uint64_t token = (uint64_t{blockIdx.x / row_groups} * block_side + zinc::warp_id() / block_side) * warp_tokens;
  if (token >= p.n_tokens) return;
  if (row + warp_rows <= p.m && token + warp_tokens <= p.n_tokens) {
    multiply_part<warp_rows, warp_tokens, true>(x, weights, y, row, token, p);
  } else {
    const uint64_t end = min(row + warp_rows, uint64_t{p.m});
    for (uint64_t r = row; r < end; ++r) multiply_part<1, warp_tokens, false>(x, weights, y, r, token, p);
  }
}
