// accum += scale * src. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of its
// block's tile, `threads` apart. accum and src may be the same buffer, hence no __restrict__.
#include "zinc/scale_accumulate.h"

#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(scale_accumulate_tile::threads)
    scale_accumulate(float* accum, const float* src, scale_accumulate_push p) {
  zinc::wait_for_previous();
  using namespace scale_accumulate_tile;
  const float scale = __uint_as_float(p.scale_bits);
  zinc::map_elements<threads, per_thread>(accum, p.n, [=](float a, float s) { return fmaf(scale, s, a); }, accum, src);
}
