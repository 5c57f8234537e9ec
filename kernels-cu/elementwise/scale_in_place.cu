// data *= scale. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of its
// block's tile, `threads` apart.
#include "zinc/scale_in_place.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(scale_in_place_tile::threads) scale_in_place(float* data, scale_in_place_push p) {
  zinc::wait_for_previous();
  using namespace scale_in_place_tile;
  const float scale = __uint_as_float(p.scale_bits);
  zinc::map_elements<threads, per_thread>(data, p.n, [=](float x) { return x * scale; }, data);
}
