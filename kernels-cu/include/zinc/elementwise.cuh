// The skeleton of kernels that compute every output element from the input elements of the same index.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// out[i] = value(i) for the elements of tile `tile` below n. A tile is threads * per_thread consecutive elements;
// thread t owns the elements t, t + threads, ... of the tile, so that a warp's accesses are contiguous without any
// demand on alignment. A thread evaluates all its elements before it stores the first: the loads are in flight
// together, and `out` may be exactly one of the buffers that `value` reads. Pure copies map uint32_t, so that no bit
// pattern can change on the way.
template <unsigned threads, unsigned per_thread, class T, class Value>
ZINC_DEVICE void map_tile(uint32_t tile, T* out, uint32_t n, Value value) {
  static_assert(sizeof(T) == 4, "a warp's accesses fill whole 128-byte lines");
  const uint64_t first = uint64_t{tile} * (threads * per_thread) + threadIdx.x;
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

// map_tile over one vector: the grid holds ceil_div(n, threads * per_thread) blocks in x, the block `threads` threads.
template <unsigned threads, unsigned per_thread, class T, class Value>
ZINC_DEVICE void map_elements(T* out, uint32_t n, Value value) {
  map_tile<threads, per_thread>(blockIdx.x, out, n, value);
}

// Place of a block in a grid over the tiles of several rows of n elements, row-major in x: y and z are too short for
// long prompts. The grid holds rows * ceil_div(n, tile_elements) blocks.
struct RowTile {
  uint32_t row;
  uint32_t tile;
};

template <unsigned tile_elements>
ZINC_DEVICE RowTile row_tile(uint32_t n) {
  const uint32_t tiles = (n - 1) / tile_elements + 1;
  return {blockIdx.x / tiles, blockIdx.x % tiles};
}

}  // namespace zinc
