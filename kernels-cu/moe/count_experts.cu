// How many cells of a strided routing view name each expert. Grid: x over groups of `experts` experts; the block counts
// those of its group in shared memory, by integer additions whose order does not matter; it scans the whole view, a
// thread every `threads`-th cell.
#include "zinc/count_experts.h"

ZINC_KERNEL void __launch_bounds__(count_experts_tile::threads)
    count_experts(const uint32_t* __restrict__ routing, uint32_t* __restrict__ counts, count_experts_push p) {
  zinc::wait_for_previous();
  using namespace count_experts_tile;
  ZINC_SHARED(uint32_t[experts], found);
  const uint32_t first = blockIdx.x * experts;
  if (threadIdx.x < experts) found[threadIdx.x] = 0;
  __syncthreads();
  // The place of the thread's next cell, moved on without a division for each.
  const uint32_t row_step = threads / p.ne00;
  const uint32_t column_step = threads % p.ne00;
  uint64_t row = threadIdx.x / p.ne00;
  uint64_t column = threadIdx.x % p.ne00;
#pragma unroll 4
  while (row < p.ne01) {
    const uint32_t expert = routing[p.a_offset + row * p.nb01 + column * p.nb00] - first;
    row += row_step;
    column += column_step;
    if (column >= p.ne00) {
      column -= p.ne00;
      ++row;
    }
    if (expert < experts) atomicAdd(&found[expert], 1u);
  }
  __syncthreads();
  if (threadIdx.x < experts && first + threadIdx.x < p.n_experts) counts[first + threadIdx.x] = found[threadIdx.x];
}
