// RMS norm of a delta-net head, times its weight, times SiLU of a gate.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/norm.cuh"

namespace zinc {

template <unsigned width>
struct GateAndWeight {
  Pack<float, width> gate;
  Pack<float, width> weight;
};

// The threads of one threadIdx.y own head `head` of one token, whose rows of delta_out, z and out start at element
// `row`. Elements are read and written by the same thread, all reads of delta_out and z before any write. p is the push
// block of the kernel.
template <unsigned held, class Push>
ZINC_DEVICE void gated_norm_head(const float* delta_out, const float* z, const float* __restrict__ weight, float* out,
                                 uint64_t row, uint32_t head, const Push& p) {
  constexpr float eps = 1e-6f;  // fixed by the contract, not the model's epsilon
  const uint32_t d_state = p.d_state;
  // One vector of weights for the head, or one that repeats within it.
  const bool per_head = p.norm_per_head != 0;
  const float* const weights = weight + (per_head ? uint64_t{head} * p.head_v_dim : 0);
  const bool repeats = !per_head && d_state < p.head_v_dim;
  const bool aligned = row % wide == 0 && p.head_v_dim % wide == 0 && (!repeats || d_state % wide == 0);
  norm_row<held>(
      p.head_v_dim, eps, aligned, [=](auto at) { return at.of(delta_out + row); },
      [=](auto at) {
        auto from = at;
        if (repeats) from.first %= d_state;
        return GateAndWeight<at.width>{at.of(z + row), from.of(weights)};
      },
      [=](auto at, const auto& o, const auto& with, float r) {
        at.to(out + row,
              each([=](float v, float w, float g) { return (v * r) * w * silu(g); }, o, with.weight, with.gate));
      });
}

}  // namespace zinc
