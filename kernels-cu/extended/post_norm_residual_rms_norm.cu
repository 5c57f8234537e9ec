// Norms a branch, adds it to the stream, norms the stream. Grid: x over token rows; the block owns one row, a thread
// its spans in turn, of which it holds the first `held` elements of the branch and of the sum in registers. Those of a
// longer row it forms anew in each pass, from the same values and by the same operations.
#include "zinc/post_norm_residual_rms_norm.h"

#include "zinc/norm.cuh"

namespace {

template <unsigned held, unsigned width>
ZINC_DEVICE void post_norm_row(float* __restrict__ hidden, const float* __restrict__ residual,
                               const float* __restrict__ post_weights, float* __restrict__ norm_out,
                               const float* __restrict__ norm_weights, const post_norm_residual_rms_norm_push& p) {
  ZINC_SHARED(float[zinc::max_block_warps], partial_branch);
  ZINC_SHARED(float[zinc::max_block_warps], partial_stream);
  using At = zinc::Span<width>;
  using Values = zinc::Pack<float, width>;
  constexpr unsigned spans = held / width;
  const uint32_t step = blockDim.x * width;
  const uint32_t first = threadIdx.x * width;
  const uint64_t rest = first + uint64_t{spans} * step;
  Values branch[spans];
  Values stream[spans];

  float squares = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    const At at = {first + j * step};
    if (at.first < p.n) {
      branch[j] = at.of(residual);
      stream[j] = at.of(hidden);
    }
  }
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < p.n) squares = zinc::add_squares(branch[j], squares);
  }
  for (uint64_t i = rest; i < p.n; i += step) squares = zinc::add_squares(At{i}.of(residual), squares);
  const float branch_r = zinc::inverse_rms(zinc::row_sum(squares, partial_branch), p.n, p.eps);

  const auto add = [=](At at, const Values& b, const Values& h) {
    return zinc::each([=](float weight, float x, float y) { return fmaf(weight, x * branch_r, y); },
                      at.of(post_weights), b, h);
  };
  squares = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    const At at = {first + j * step};
    if (at.first < p.n) {
      stream[j] = add(at, branch[j], stream[j]);
      squares = zinc::add_squares(stream[j], squares);
    }
  }
  for (uint64_t i = rest; i < p.n; i += step) {
    const At at = {i};
    squares = zinc::add_squares(add(at, at.of(residual), at.of(hidden)), squares);
  }
  const float stream_r = zinc::inverse_rms(zinc::row_sum(squares, partial_stream), p.n, p.eps);

  const float hidden_scale = p.hidden_scale;
  const auto store = [=](At at, const Values& h) {
    at.to(norm_out, zinc::each([=](float weight, float x) { return weight * (x * stream_r); }, at.of(norm_weights), h));
    at.to(hidden, zinc::each([=](float x) { return x * hidden_scale; }, h));
  };
#pragma unroll
  for (unsigned j = 0; j < spans; ++j) {
    if (first + j * step < p.n) store(At{first + j * step}, stream[j]);
  }
  for (uint64_t i = rest; i < p.n; i += step) {
    const At at = {i};
    store(at, add(at, at.of(residual), at.of(hidden)));
  }
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * post_norm_residual_rms_norm_tile::max_warps, 1)
    post_norm_residual_rms_norm(float* __restrict__ hidden, const float* __restrict__ residual,
                                const float* __restrict__ post_weights, float* __restrict__ norm_out,
                                const float* __restrict__ norm_weights, post_norm_residual_rms_norm_push p) {
  zinc::wait_for_previous();
  constexpr unsigned held = post_norm_residual_rms_norm_tile::held;
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  if (p.n % zinc::wide == 0) {
    post_norm_row<held, zinc::wide>(hidden + row, residual + row, post_weights, norm_out + row, norm_weights, p);
  } else {
    post_norm_row<1, 1>(hidden + row, residual + row, post_weights, norm_out + row, norm_weights, p);
  }
}
