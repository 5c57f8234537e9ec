// Small kernels of the common kinds.
#include "zinc/platform.cuh"

struct vadd_push {
  uint32_t n;
};

// Thread i owns element i.
ZINC_KERNEL void __launch_bounds__(256) test_vadd(const float* a, const float* b, float* c, vadd_push p) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) c[i] = a[i] + b[i];
}
ZINC_EMULATOR_ENTRY(test_vadd)
