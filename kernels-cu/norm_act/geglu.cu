// y = GELU(gate) * up, with the clamped tanh form of GELU. Grid: x over tiles of threads * per_thread elements; a
// thread owns per_thread elements of its block's tile, `threads` apart, or of few elements one. y may be gate or up,
// hence no __restrict__.
#include "zinc/geglu.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(geglu_tile::threads)
    geglu(const float* gate, const float* up, float* y, geglu_push p) {
  zinc::wait_for_previous();
  using namespace geglu_tile;
  zinc::map_elements<threads, per_thread, few>(
      y, p.n, [](float g, float u) { return zinc::gelu_tanh(g) * u; }, gate, up);
}
