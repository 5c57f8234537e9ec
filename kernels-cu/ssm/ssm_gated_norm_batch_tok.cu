// ssm_gated_norm for a batch of tokens. Grid: x over (token, head); the block owns one head of one token, a thread
// every blockDim.x-th element.
//@ tile = { max_warps = 8, held = 4 }
//@ block = ["32 * min(max_warps, ceil_div(head_v_dim, 32 * held))"]
//@ grid = ["n_tok * dt_rank"]
#include "zinc/ssm_gated_norm_batch_tok.h"

#include "zinc/gated_norm.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_gated_norm_batch_tok_tile::max_warps, 1)
    ssm_gated_norm_batch_tok(const float* delta_out, const float* z, const float* norm_weight, float* out,
                             ssm_gated_norm_batch_tok_push p) {
  const uint32_t token = blockIdx.x / p.dt_rank;
  const uint32_t head = blockIdx.x % p.dt_rank;
  const uint64_t row = uint64_t{token} * p.d_inner + uint64_t{head} * p.head_v_dim;
  zinc::gated_norm_head<ssm_gated_norm_batch_tok_tile::held>(delta_out, z, norm_weight, out, row, head, p);
}
