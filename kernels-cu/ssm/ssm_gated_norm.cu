// Per-head RMS norm times weight times SiLU(z) of one token. Grid: x over heads; the block owns one head, a thread
// every blockDim.x-th element.
//@ tile = { max_warps = 8, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(head_v_dim, 32 * held))"]
//@ grid = ["dt_rank"]
#include "zinc/ssm_gated_norm.h"

#include "zinc/gated_norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_tile::max_warps, 1)
    ssm_gated_norm(const float* delta_out, const float* z, const float* norm_weight, float* out,
                   ssm_gated_norm_push p) {
  zinc::gated_norm_head<ssm_gated_norm_tile::held>(delta_out, z, norm_weight, out, uint64_t{blockIdx.x} * p.head_v_dim,
                                                   blockIdx.x, p);
}
