// The skeleton of kernels that compute every output element from the input elements of the same index.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// out[i] = value(i) for i < n. A block owns a tile of threads * per_thread consecutive elements; thread t owns the
// elements t, t + threads, ... of the tile, so that a warp's accesses are contiguous without any demand on alignment.
// A thread evaluates all its elements before it stores the first: the loads are in flight together, and `out` may be
// exactly one of the buffers that `value` reads.
// The grid holds ceil_div(n, threads * per_thread) blocks in x, the block `threads` threads.
// Pure copies map uint32_t, so that no bit pattern can change on the way.
template <unsigned threads, unsigned per_thread, class T, class Value>
ZINC_DEVICE void map_elements(T* out, uint32_t n, Value value) {
  static_assert(sizeof(T) == 4, "a warp's accesses fill whole 128-byte lines");
  const uint64_t first = uint64_t{blockIdx.x} * (threads * per_thread) + threadIdx.x;
  T result[per_thread];
#pragma unroll
  for (unsigned j = 0; j < per_thread; ++j) {
    const uint64_t i = first + j * threads;
    result[j] = i < n ? value(i) : T{};
  }
#pragma unroll
  for (unsigned j = 0; j < per_thread; ++j) {
    const uint64_t i = first + j * threads;
    if (i < n) out[i] = result[j];
  }
}

}  // namespace zinc
