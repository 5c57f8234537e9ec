// How many cells of a strided routing view name each expert. Grid: x over experts; the block owns one expert and scans
// the view, a thread every `threads`-th cell.
//@ tile = { threads = 256 }
//@ block = ["threads"]
//@ grid = ["n_experts"]
#include "zinc/count_experts.h"

#include "zinc/warp.cuh"

ZINC_KERNEL void __launch_bounds__(count_experts_tile::threads)
    count_experts(const uint32_t* __restrict__ routing, uint32_t* __restrict__ counts, count_experts_push p) {
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);
  const uint64_t cells = uint64_t{p.ne00} * p.ne01;
  uint32_t found = 0;
  for (uint64_t cell = threadIdx.x; cell < cells; cell += count_experts_tile::threads) {
    const uint64_t row = cell / p.ne00;
    const uint64_t column = cell % p.ne00;
    found += routing[p.a_offset + row * p.nb01 + column * p.nb00] == blockIdx.x;
  }
  const uint32_t total = zinc::block_sum(found, partial);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}
