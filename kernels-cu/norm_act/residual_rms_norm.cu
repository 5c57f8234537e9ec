// hidden += scale * residual, then norm_out = (weights * hidden) * r, r the inverse RMS of the updated row. Grid: x
// over token rows; the block owns one row. The first visit of an element updates hidden; a row longer than the
// registers hold reads the updated values back.
//@ tile = { max_warps = 32, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(n, 32 * held))"]
//@ grid = ["n_tokens"]
#include "zinc/residual_rms_norm.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * residual_rms_norm_tile::max_warps, 1)
    residual_rms_norm(float* __restrict__ hidden, const float* __restrict__ residual, float* __restrict__ norm_out,
                      const float* __restrict__ weights, residual_rms_norm_push p) {
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  const float scale = p.scale;
  zinc::rms_norm_row<residual_rms_norm_tile::held>(
      p.n, p.eps,
      [=](uint32_t i) {
        const float updated = fmaf(scale, residual[row + i], hidden[row + i]);
        hidden[row + i] = updated;
        return updated;
      },
      [=](uint32_t i) { return hidden[row + i]; },
      [=](uint32_t i, float v, float r) { norm_out[row + i] = (weights[i] * v) * r; });
}
