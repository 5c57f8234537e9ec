// hidden += (weights * src) * r row by row, r the inverse RMS of the row of src. Grid: x over token rows; the block
// owns one row, with enough warps that a thread holds its `held` elements in registers where the row allows it.
#include "zinc/rms_norm_add.h"

#include "zinc/norm.cuh"

namespace {

template <unsigned width>
struct Operands {
  zinc::Pack<float, width> hidden;
  zinc::Pack<float, width> weight;
};

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * rms_norm_add_tile::max_warps, 1)
    rms_norm_add(float* __restrict__ hidden, const float* __restrict__ src, const float* __restrict__ weights,
                 rms_norm_add_push p) {
  zinc::wait_for_previous();
  float* const to = hidden + uint64_t{blockIdx.x} * p.n;
  const float* const from = src + uint64_t{blockIdx.x} * p.n;
  zinc::norm_row<rms_norm_add_tile::held>(
      p.n, p.eps, true, [=](auto at) { return at.of(from); },
      [=](auto at) { return Operands<at.width>{at.of(to), at.of(weights)}; },
      [=](auto at, const auto& v, const auto& o, float r) {
        at.to(to, zinc::each([=](float h, float w, float x) { return h + (w * x) * r; }, o.hidden, o.weight, v));
      });
}
