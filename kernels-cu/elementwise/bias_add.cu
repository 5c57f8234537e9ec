// out += bias[src_offset ..]. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of
// its block's tile, `threads` apart.
#include "zinc/bias_add.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(bias_add_tile::threads)
    bias_add(float* __restrict__ out, const float* __restrict__ bias, bias_add_push p) {
  zinc::wait_for_previous();
  using namespace bias_add_tile;
  zinc::map_elements<threads, per_thread>(out, p.n, [](float x, float b) { return x + b; }, out, bias + p.src_offset);
}
