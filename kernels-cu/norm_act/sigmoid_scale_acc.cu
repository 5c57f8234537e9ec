// accum += sigmoid(gate[0]) * src. Grid: x over tiles of threads * per_thread elements; a thread owns per_thread
// elements of its block's tile, `threads` apart, and evaluates the one sigmoid itself.
#include "zinc/sigmoid_scale_acc.h"

#include "zinc/activation.cuh"
#include "zinc/elementwise.cuh"

ZINC_KERNEL void __launch_bounds__(sigmoid_scale_acc_tile::threads)
    sigmoid_scale_acc(float* __restrict__ accum, const float* __restrict__ src, const float* __restrict__ gate,
                      sigmoid_scale_acc_push p) {
  zinc::wait_for_previous();
  using namespace sigmoid_scale_acc_tile;
  const float factor = zinc::sigmoid(gate[0]);
  zinc::map_elements<threads, per_thread, few>(
      accum, p.n, [=](float a, float s) { return fmaf(factor, s, a); }, accum, src);
}
