// a *= b. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of its
// block's tile, `threads` apart. a and b may be the same buffer, hence no __restrict__.
#include "zinc/mul_elementwise.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(mul_elementwise_tile::threads)
    mul_elementwise(float* a, const float* b, mul_elementwise_push p) {
  zinc::wait_for_previous();
  using namespace mul_elementwise_tile;
  zinc::map_elements<threads, per_thread>(a, p.n, [](float x, float y) { return x * y; }, a, b);
}
