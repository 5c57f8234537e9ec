// hidden += (weights * src) * r row by row, r the inverse RMS of the row of src. Grid: x over token rows; the block
// owns one row, with enough warps that a thread holds its `held` elements in registers where the row allows it.
//@ tile = { max_warps = 32, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(n, 32 * held))"]
//@ grid = ["n_tokens"]
#include "zinc/rms_norm_add.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * rms_norm_add_tile::max_warps, 1)
    rms_norm_add(float* __restrict__ hidden, const float* __restrict__ src, const float* __restrict__ weights,
                 rms_norm_add_push p) {
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  zinc::rms_norm_row<rms_norm_add_tile::held>(
      p.n, p.eps, [=](uint32_t i) { return src[row + i]; },
      [=](uint32_t i, float v, float r) { hidden[row + i] += (weights[i] * v) * r; });
}
