// The gated delta rule: a state matrix per head that decays, is corrected by a rank-1 update and read out, token by
// token.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/conv1d.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// Columns of the state that a kernel can hold: four of each lane of a warp.
constexpr unsigned delta_net_max_width = 128;

struct DeltaNetBuffers {
  const float* __restrict__ conv_out;
  const void* __restrict__ dt_bias;
  const float* __restrict__ alpha;
  const float* __restrict__ beta;
  const void* __restrict__ ssm_a;
  float* __restrict__ state;
  float* __restrict__ out;
};

// Factor that gives the vector whose elements lie over the warp's lanes unit length (an L2 norm; the clamp is on the
// sum).
template <unsigned elements>
ZINC_DEVICE float unit_length_factor(const float (&vector)[elements]) {
  float sum = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < elements; ++j) sum = fmaf(vector[j], vector[j], sum);
  return 1.0f / sqrtf(fmaxf(warp_sum(sum), 1e-12f));
}

template <unsigned elements>
ZINC_DEVICE float warp_dot(const float (&a)[elements], const float (&b)[elements]) {
  float sum = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < elements; ++j) sum = fmaf(a[j], b[j], sum);
  return warp_sum(sum);
}

// Block (head, y) owns the state rows of `head` from y * warps * rows on, each of its warps `rows` of them. A lane
// holds the columns lane, lane + 32, ... of the warp's rows in registers from the first token to the last; rows depend
// on no other row, so no barrier is needed. value_dim and key_dim are head_v_dim and d_state of the push block, passed
// apart so that a kernel for one shape can give constants. `normalise` is false where Q and K come normalised and
// scaled.
template <unsigned rows, bool normalise, class Push>
ZINC_DEVICE void delta_net(const DeltaNetBuffers& buffers, const Push& p, uint32_t value_dim, uint32_t key_dim) {
  constexpr unsigned lane_columns = delta_net_max_width / warp_size;
  const uint32_t head = blockIdx.x;
  const uint32_t first_row = (blockIdx.y * block_warps() + warp_id()) * rows;
  if (first_row >= value_dim) return;

  const uint32_t group = head % p.n_group;
  const uint32_t width = min(value_dim, key_dim);
  const uint64_t keys = uint64_t{p.n_group} * key_dim;
  const float bias = p.has_dt_bias != 0 ? flagged_element(buffers.dt_bias, head, p.dt_bias_is_f16) : 0.0f;
  const float decay = p.has_ssm_a != 0 ? flagged_element(buffers.ssm_a, head, p.ssm_a_is_f16) : -1.0f;
  const float query_scale = normalise ? 1.0f / sqrtf(static_cast<float>(key_dim)) : 1.0f;
  float* const rows_state = buffers.state + (uint64_t{head} * value_dim + first_row) * value_dim;

  float s[rows][lane_columns];
#pragma unroll
  for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      const bool exists = first_row + r < value_dim && column < value_dim;
      s[r][j] = exists ? rows_state[r * value_dim + column] : 0.0f;
    }
  }

  for (uint32_t t = 0; t < p.n_tok; ++t) {
    const float* const token = buffers.conv_out + uint64_t{t} * p.conv_stride_tok;
    const float* const values = token + 2 * keys + uint64_t{head} * value_dim + first_row;
    const uint64_t gates = uint64_t{t} * p.ab_stride_tok + head;
    float* const token_out = buffers.out + uint64_t{t} * p.y_stride_tok + uint64_t{head} * value_dim + first_row;

    float q[lane_columns];
    float k[lane_columns];
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      q[j] = column < width ? token[uint64_t{group} * key_dim + column] : 0.0f;
      k[j] = column < width ? token[keys + uint64_t{group} * key_dim + column] : 0.0f;
    }
    if (normalise) {
      const float q_factor = unit_length_factor(q) * query_scale;
      const float k_factor = unit_length_factor(k);
#pragma unroll
      for (unsigned j = 0; j < lane_columns; ++j) {
        q[j] *= q_factor;
        k[j] *= k_factor;
      }
    }
    const float gate = expf(softplus(buffers.alpha[gates] + bias) * decay);
    const float strength = sigmoid(buffers.beta[gates]);

#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const bool exists = first_row + r < value_dim;
#pragma unroll
      for (unsigned j = 0; j < lane_columns; ++j) s[r][j] *= gate;
      const float value = exists ? values[r] : 0.0f;
      const float correction = strength * (value - warp_dot(s[r], k));
#pragma unroll
      for (unsigned j = 0; j < lane_columns; ++j) {
        // Columns past the keys only decay, whatever the correction is.
        if (lane_id() + j * warp_size < width) s[r][j] = fmaf(correction, k[j], s[r][j]);
      }
      const float read_out = warp_dot(s[r], q);
      if (exists && lane_id() == r) token_out[r] = read_out;
    }
  }

#pragma unroll
  for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      if (first_row + r < value_dim && column < value_dim) rows_state[r * value_dim + column] = s[r][j];
    }
  }
}

}  // namespace zinc
