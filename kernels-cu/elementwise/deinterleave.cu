// Splits packed [query][gate] heads into two tensors. Grid: x over heads, `heads` to a block (y of the block); a thread
// owns every blockDim.x-th span of four elements of both halves of its head.
#include "zinc/deinterleave.h"

#include "zinc/deinterleave.cuh"

ZINC_KERNEL void __launch_bounds__(deinterleave_tile::threads* deinterleave_tile::heads)
    deinterleave(const uint32_t* packed, uint32_t* q, uint32_t* gate, deinterleave_push p) {
  zinc::wait_for_previous();
  zinc::split_packed_head(packed, q, gate, p.head_dim, uint64_t{p.n_heads});
}
