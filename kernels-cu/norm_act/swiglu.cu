// y = SiLU(gate) * up. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of
// its block's tile, `threads` apart, or of few elements one. y may be gate or up, hence no __restrict__.
#include "zinc/swiglu.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(swiglu_tile::threads)
    swiglu(const float* gate, const float* up, float* y, swiglu_push p) {
  zinc::wait_for_previous();
  using namespace swiglu_tile;
  zinc::map_elements<threads, per_thread, few>(y, p.n, [](float g, float u) { return zinc::silu(g) * u; }, gate, up);
}
