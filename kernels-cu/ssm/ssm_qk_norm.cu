// L2 normalisation of one token's query and key heads, in place. Grid: x over groups of `warps` heads, Q's before K's;
// a warp owns one head of 128 elements, a lane every 32nd element of it.
#include "zinc/ssm_qk_norm.h"

#include "zinc/delta_net.cuh"

ZINC_KERNEL void __launch_bounds__(zinc::warp_size* ssm_qk_norm_tile::warps)
    ssm_qk_norm(float* conv_out, ssm_qk_norm_push p) {
  zinc::wait_for_previous();
  constexpr unsigned width = zinc::delta_net_max_width;  // d_state, by the contract
  constexpr unsigned lane_elements = width / zinc::warp_size;
  const uint64_t head = uint64_t{blockIdx.x} * ssm_qk_norm_tile::warps + zinc::warp_id();
  if (head >= 2 * uint64_t{p.n_group}) return;
  // qk_dim is n_group * d_state: the K heads follow the Q heads.
  float* const row = conv_out + head * width + zinc::lane_id();
  float element[lane_elements];
#pragma unroll
  for (unsigned j = 0; j < lane_elements; ++j) element[j] = row[j * zinc::warp_size];
  const float scale = head < p.n_group ? 1.0f / sqrtf(static_cast<float>(width)) : 1.0f;
  const float factor = zinc::unit_length_factor(zinc::warp_dot(element, element)) * scale;
#pragma unroll
  for (unsigned j = 0; j < lane_elements; ++j) row[j * zinc::warp_size] = element[j] * factor;
}
