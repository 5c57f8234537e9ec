// RMS norm of one hidden vector with an unmodified copy of it (the name is historical). Grid: one block; a thread owns
// every blockDim.x-th group of four elements and holds its `held` first elements in registers.
#include "zinc/ssm_gated_norm_batched.h"

#include "zinc/norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_batched_tile::max_warps, 1)
    ssm_gated_norm_batched(const float* __restrict__ hidden, const float* __restrict__ weight,
                           float* __restrict__ norm_out, float* __restrict__ hidden_out,
                           ssm_gated_norm_batched_push p) {
  zinc::wait_for_previous();
  zinc::norm_spans<ssm_gated_norm_batched_tile::held, zinc::wide>(
      p.n, p.eps, [=](auto at) { return at.of(hidden); }, [=](auto at, const auto& v) { at.to(hidden_out, v); },
      [=](auto at) { return at.of(hidden); }, [=](auto at) { return at.of(weight); },
      [=](auto at, const auto& v, const auto& w, float r) {
        at.to(norm_out, zinc::each([=](float a, float b) { return b * (a * r); }, v, w));
      });
}
