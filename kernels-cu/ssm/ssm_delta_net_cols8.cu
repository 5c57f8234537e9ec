// Gated delta-rule recurrence of 128-wide heads. Grid: x over value heads, y over groups of
// state rows. A row warp owns a few rows of one head's state for all tokens; the helper warps prepare the tokens for
// them.
#include "zinc/ssm_delta_net_cols8.h"

#include "zinc/delta_net.cuh"

ZINC_KERNEL void __launch_bounds__(32 * (ssm_delta_net_cols8_tile::row_warps + ssm_delta_net_cols8_tile::helper_warps))
    ssm_delta_net_cols8(const float* conv_out, const void* dt_bias, const float* alpha, const float* beta,
                        const void* ssm_a, float* state, float* out, ssm_delta_net_cols8_push p) {
  zinc::wait_for_previous();
  using namespace ssm_delta_net_cols8_tile;
  using Net = zinc::DeltaNet128<row_lanes, lane_rows, row_warps, helper_warps, chunk, true>;
  ZINC_DYNAMIC_SHARED(Net::Token, shared);
  const zinc::DeltaNetBuffers buffers = {conv_out, dt_bias, alpha, beta, ssm_a, state, out};
  Net::run(buffers, p, shared);
}
