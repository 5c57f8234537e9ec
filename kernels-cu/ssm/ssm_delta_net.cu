// Gated delta-rule recurrence of any head width up to 128. Grid: x over value heads, y over groups of state rows. Heads
// of 128: a row warp owns a few rows of one head's state for all tokens; the helper warps prepare the tokens for them.
// Other widths: a row warp owns a few rows, a lane every 32nd column of them; the helper warps have no work.
#include "zinc/ssm_delta_net.h"

#include "zinc/delta_net.cuh"

ZINC_KERNEL void __launch_bounds__(32 * (ssm_delta_net_tile::row_warps + ssm_delta_net_tile::helper_warps))
    ssm_delta_net(const float* conv_out, const void* dt_bias, const float* alpha, const float* beta, const void* ssm_a,
                  float* state, float* out, ssm_delta_net_push p) {
  zinc::wait_for_previous();
  using namespace ssm_delta_net_tile;
  using Net = zinc::DeltaNet128<row_lanes, lane_rows, row_warps, helper_warps, chunk, true>;
  ZINC_DYNAMIC_SHARED(Net::Token, shared);
  const zinc::DeltaNetBuffers buffers = {conv_out, dt_bias, alpha, beta, ssm_a, state, out};
  if (p.head_v_dim == Net::width && p.d_state == Net::width) {
    Net::run(buffers, p, shared);
  } else {
    zinc::delta_net_any_width<row_warps, Net::warp_rows>(buffers, p);
  }
}
