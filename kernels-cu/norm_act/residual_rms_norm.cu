// hidden += scale * residual, then norm_out = (weights * hidden) * r, r the inverse RMS of the updated row. Grid: x
// over token rows; the block owns one row, with enough warps that a thread holds its `held` elements in registers where
// the row allows it; a longer row reads the updated values back.
#include "zinc/residual_rms_norm.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * residual_rms_norm_tile::max_warps, 1)
    residual_rms_norm(float* __restrict__ hidden, const float* __restrict__ residual, float* __restrict__ norm_out,
                      const float* __restrict__ weights, residual_rms_norm_push p) {
  zinc::wait_for_previous();
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  float* const stream = hidden + row;
  const float* const branch = residual + row;
  float* const out = norm_out + row;
  const float scale = p.scale;
  zinc::norm_row<residual_rms_norm_tile::held>(
      p.n, p.eps, true,
      [=](auto at) {
        return zinc::each([=](float b, float h) { return fmaf(scale, b, h); }, at.of(branch), at.of(stream));
      },
      [=](auto at, const auto& updated) { at.to(stream, updated); }, [=](auto at) { return at.of(stream); },
      [=](auto at) { return at.of(weights); },
      [=](auto at, const auto& v, const auto& w, float r) {
        at.to(out, zinc::each([=](float a, float b) { return (b * a) * r; }, v, w));
      });
}
