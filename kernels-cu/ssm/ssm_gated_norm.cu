// Per-head RMS norm times weight times SiLU(z) of one token. Grid: x over heads; the block owns one head, or
// `short_rows` heads of one warp each (y of the block).
#include "zinc/ssm_gated_norm.h"

#include "zinc/gated_norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_tile::max_warps, 1)
    ssm_gated_norm(const float* delta_out, const float* z, const float* norm_weight, float* out,
                   ssm_gated_norm_push p) {
  zinc::wait_for_previous();
  const uint64_t head = zinc::own_row();
  if (head >= p.dt_rank) return;
  zinc::gated_norm_head<ssm_gated_norm_tile::held>(delta_out, z, norm_weight, out, head * p.head_v_dim,
                                                   static_cast<uint32_t>(head), p);
}
