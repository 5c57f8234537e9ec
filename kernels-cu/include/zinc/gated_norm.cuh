// RMS norm of a delta-net head, times its weight, times SiLU of a gate.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/norm.cuh"

namespace zinc {

// The block owns head `head` of one token, whose rows of delta_out, z and out start at element `row`. Elements are read
// and written by the same thread, all reads for the sum before any write. p is the push block of the kernel.
template <unsigned held, class Push>
ZINC_DEVICE void gated_norm_head(const float* delta_out, const float* z, const float* __restrict__ weight, float* out,
                                 uint64_t row, uint32_t head, const Push& p) {
  constexpr float eps = 1e-6f;  // fixed by the contract, not the model's epsilon
  const uint32_t d_state = p.d_state;
  const bool per_head = p.norm_per_head != 0;
  const uint64_t first_weight = uint64_t{head} * p.head_v_dim;
  rms_norm_row<held>(
      p.head_v_dim, eps, [=](uint32_t i) { return delta_out[row + i]; },
      [=](uint32_t i, float o, float r) {
        const float w = weight[per_head ? first_weight + i : i % d_state];
        out[row + i] = (o * r) * w * silu(z[row + i]);
      });
}

}  // namespace zinc
