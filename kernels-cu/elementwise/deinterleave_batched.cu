// Splits the packed [query][gate] heads of a batch of tokens into two tensors. Grid: x over (token, head), `heads`
// heads to a block (y of the block); a thread owns every blockDim.x-th span of four elements of both halves of its
// head.
#include "zinc/deinterleave_batched.h"

#include "zinc/deinterleave.cuh"

ZINC_KERNEL void __launch_bounds__(deinterleave_batched_tile::threads* deinterleave_batched_tile::heads)
    deinterleave_batched(const uint32_t* packed, uint32_t* q, uint32_t* gate, deinterleave_batched_push p) {
  zinc::wait_for_previous();
  zinc::split_packed_head(packed, q, gate, p.head_dim, uint64_t{p.n_tokens} * p.n_heads);
}
