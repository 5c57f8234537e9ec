// Splits the packed [query][gate] heads of a batch of tokens into two tensors. Grid: x over (token, head); the block
// owns one head, a thread every blockDim.x-th element of both its halves.
//@ tile = { max_warps = 8 }
//@ block = ["32 * min(max_warps, ceil_div(head_dim, 32))"]
//@ grid = ["n_tokens * n_heads"]
#include "zinc/deinterleave_batched.h"

#include "zinc/deinterleave.cuh"

ZINC_KERNEL void __launch_bounds__(32 * deinterleave_batched_tile::max_warps)
    deinterleave_batched(const uint32_t* packed, uint32_t* q, uint32_t* gate, deinterleave_batched_push p) {
  zinc::split_packed_head(packed, q, gate, p.head_dim);
}
