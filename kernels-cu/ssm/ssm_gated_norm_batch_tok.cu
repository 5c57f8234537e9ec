// ssm_gated_norm for a batch of tokens. Grid: x over (token, head); the block owns one head of one token, or
// `short_rows` of them of one warp each (y of the block).
#include "zinc/ssm_gated_norm_batch_tok.h"

#include "zinc/gated_norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_batch_tok_tile::max_warps, 1)
    ssm_gated_norm_batch_tok(const float* delta_out, const float* z, const float* norm_weight, float* out,
                             ssm_gated_norm_batch_tok_push p) {
  zinc::wait_for_previous();
  const uint64_t at = zinc::own_row();
  const uint64_t token = at / p.dt_rank;
  if (token >= p.n_tok) return;
  const uint32_t head = static_cast<uint32_t>(at % p.dt_rank);
  const uint64_t row = token * p.d_inner + uint64_t{head} * p.head_v_dim;
  zinc::gated_norm_head<ssm_gated_norm_batch_tok_tile::held>(delta_out, z, norm_weight, out, row, head, p);
}
