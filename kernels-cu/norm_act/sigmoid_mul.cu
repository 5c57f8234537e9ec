// y = x * sigmoid(gate). Grid: x over tiles of threads * per_thread elements; a thread owns per_thread elements of its
// block's tile, `threads` apart. y may be x or gate, hence no __restrict__.
#include "zinc/sigmoid_mul.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(sigmoid_mul_tile::threads)
    sigmoid_mul(const float* x, const float* gate, float* y, sigmoid_mul_push p) {
  zinc::wait_for_previous();
  using namespace sigmoid_mul_tile;
  zinc::map_elements<threads, per_thread, few>(y, p.n, [](float v, float g) { return v * zinc::sigmoid(g); }, x, gate);
}
