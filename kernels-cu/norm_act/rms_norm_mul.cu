// y = weight * (x * r) row by row, r the inverse RMS of the row of x. Grid: x over rows; the block owns one row, with
// enough warps that a thread holds its `held` elements in registers where the row allows it, or `short_rows` rows of
// one warp each (y of the block). y may be x.
#include "zinc/rms_norm_mul.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * rms_norm_mul_tile::max_warps, 1)
    rms_norm_mul(const float* x, const float* __restrict__ weight, float* y, rms_norm_mul_push p) {
  zinc::wait_for_previous();
  const uint64_t row = zinc::own_row();
  if (row >= p.n_rows) return;
  const float* const from = x + row * p.n;
  float* const to = y + row * p.n;
  zinc::norm_spans<rms_norm_mul_tile::held, zinc::wide>(
      p.n, p.eps, [=](auto at) { return at.of(from); }, [](auto, const auto&) {}, [=](auto at) { return at.of(from); },
      [=](auto at) { return at.of(weight); },
      [=](auto at, const auto& v, const auto& w, float r) {
        at.to(to, zinc::each([=](float a, float b) { return b * (a * r); }, v, w));
      });
}
