// The clamped SwiGLU variant of gpt-oss. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread
// elements of its block's tile, `threads` apart. y may be gate or up, hence no __restrict__.
#include "zinc/swiglu_oai.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(swiglu_oai_tile::threads)
    swiglu_oai(const float* gate, const float* up, float* y, swiglu_oai_push p) {
  zinc::wait_for_previous();
  using namespace swiglu_oai_tile;
  zinc::map_elements<threads, per_thread, few>(
      y, p.n, [](float g, float u) { return zinc::swiglu_oai(g, u); }, gate, up);
}
