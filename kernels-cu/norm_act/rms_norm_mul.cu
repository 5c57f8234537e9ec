// y = weight * (x * r) row by row, r the inverse RMS of the row of x. Grid: x over rows; the block owns one row, with
// enough warps that a thread holds its `held` elements in registers where the row allows it. y may be x.
//@ tile = { max_warps = 32, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(n, 32 * held))"]
//@ grid = ["n_rows"]
#include "zinc/rms_norm_mul.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * rms_norm_mul_tile::max_warps, 1)
    rms_norm_mul(const float* x, const float* __restrict__ weight, float* y, rms_norm_mul_push p) {
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  zinc::rms_norm_row<rms_norm_mul_tile::held>(
      p.n, p.eps, [=](uint32_t i) { return x[row + i]; },
      [=](uint32_t i, float v, float r) { y[row + i] = weight[i] * (v * r); });
}
