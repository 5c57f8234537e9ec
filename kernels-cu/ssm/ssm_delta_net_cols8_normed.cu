// The recurrence of ssm_delta_net_cols8 for Q and K that are already normalised and scaled. Grid: x over value heads, y
// over groups of state rows; a warp owns `rows` rows of one head's state, a lane every 32nd column of them, for all
// tokens.
//@ tile = { warps = 4, rows = 4 }
//@ block = ["32 * warps"]
//@ grid = ["dt_rank", "ceil_div(head_v_dim, warps * rows)"]
#include "zinc/ssm_delta_net_cols8_normed.h"

#include "zinc/delta_net.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_delta_net_cols8_normed_tile::warps)
    ssm_delta_net_cols8_normed(const float* conv_out, const void* dt_bias, const float* alpha, const float* beta,
                               const void* ssm_a, float* state, float* out, ssm_delta_net_cols8_normed_push p) {
  const zinc::DeltaNetBuffers buffers = {conv_out, dt_bias, alpha, beta, ssm_a, state, out};
  constexpr uint32_t width = zinc::delta_net_max_width;
  zinc::delta_net<ssm_delta_net_cols8_normed_tile::rows, false>(buffers, p, width, width);
}
