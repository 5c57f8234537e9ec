// c = a + b, element by element. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements
// of its block's tile, `threads` apart. c may be a or b, hence no __restrict__.
#include "zinc/vadd.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(vadd_tile::threads) vadd(const float* a, const float* b, float* c, vadd_push p) {
  zinc::wait_for_previous();
  zinc::map_elements<vadd_tile::threads, vadd_tile::per_thread, vadd_tile::few>(
      c, p.n, [](float x, float y) { return x + y; }, a, b);
}
