// The skeleton of kernels that compute every output element from the input elements of the same index.
#pragma once
#include "zinc/span.cuh"

namespace zinc {

// out = value over the elements of tile `tile` below n, a tile being threads * per_thread consecutive elements. A
// thread owns the spans t, t + threads, ... of the tile and evaluates all of them before it stores the first: the loads
// are in flight together, and `out` may be exactly one of the buffers that `value` reads. value takes a Span of any
// width and returns its Pack.
template <unsigned threads, unsigned per_thread, unsigned width, class T, class Value>
ZINC_DEVICE void map_spans(uint32_t tile, T* out, uint32_t n, Value value) {
  static_assert(sizeof(T) == 4, "the width is that of four-byte elements");
  static_assert(per_thread % width == 0, "a thread owns whole spans");
  constexpr unsigned spans = per_thread / width;
  const uint64_t base = uint64_t{tile} * (threads * per_thread);
  const uint64_t first = base + threadIdx.x * width;
  if (spans > 1 && base + threads * per_thread <= n) {
    Pack<T, width> result[spans];
#pragma unroll
    for (unsigned j = 0; j < spans; ++j) result[j] = value(Span<width>{first + j * (threads * width)});
#pragma unroll
    for (unsigned j = 0; j < spans; ++j) Span<width>{first + j * (threads * width)}.to(out, result[j]);
    return;
  }
  for (unsigned j = 0; j < spans; ++j) {
    const uint64_t at = first + j * (threads * width);
    if (at + width <= n) {
      const Span<width> span = {at};
      span.to(out, value(span));
    } else if (width > 1) {
#pragma unroll 1
      for (uint64_t i = at; i < n; ++i) {
        const Span<1> single = {i};
        single.to(out, value(single));
      }
    }
  }
}

// map_spans with the widest spans that the alignment of all the buffers allows, which `aligned` tells.
template <unsigned threads, unsigned per_thread, class T, class Value>
ZINC_DEVICE void map_tile(uint32_t tile, bool aligned, T* out, uint32_t n, Value value) {
  if (__builtin_expect(aligned, true)) {
    map_spans<threads, per_thread, wide>(tile, out, n, value);
  } else {
    map_spans<threads, per_thread, 1>(tile, out, n, value);
  }
}

// out[i] = f(in[i]...) for the elements of a tile. Pure copies map uint32_t, so that no bit pattern can change on the
// way.
template <unsigned threads, unsigned per_thread, class T, class F, class... In>
ZINC_DEVICE void map_tile_of(uint32_t tile, T* out, uint32_t n, F f, const In*... in) {
  map_tile<threads, per_thread>(tile, all_aligned(out, in...), out, n, [=](auto at) { return each(f, at.of(in)...); });
}

// map_tile_of over one vector: the grid holds ceil_div(n, threads * per_thread) blocks in x, the block `threads`
// threads. Up to `few` elements a thread has one of them, in ceil_div(n, threads) blocks: what takes the time there is
// the chain of one thread's work.
template <unsigned threads, unsigned per_thread, unsigned few = 0, class T, class F, class... In>
ZINC_DEVICE void map_elements(T* out, uint32_t n, F f, const In*... in) {
  if constexpr (few > 0) {
    if (n <= few) {
      return map_spans<threads, 1, 1>(blockIdx.x, out, n, [=](auto at) { return each(f, at.of(in)...); });
    }
  }
  map_tile_of<threads, per_thread>(blockIdx.x, out, n, f, in...);
}

// Copies tile `tile` of two vectors of n words: both loads of a thread are in flight together.
template <unsigned threads, unsigned per_thread>
ZINC_DEVICE void copy_two(uint32_t tile, uint32_t* __restrict__ out_a, const uint32_t* __restrict__ a,
                          uint32_t* __restrict__ out_b, const uint32_t* __restrict__ b, uint32_t n) {
  map_tile<threads, per_thread>(tile, all_aligned(out_a, a, out_b, b), out_a, n, [=](auto at) {
    const auto of_a = at.of(a);
    at.to(out_b, at.of(b));
    return of_a;
  });
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
