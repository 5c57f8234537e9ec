// Matrix-vector kernels that do more with one reading of the activations: two matrices, a gate and an up projection
// with their activation, a scaled accumulation.
#pragma once

#include "zinc/dmmv.cuh"
#include "zinc/gated.cuh"

namespace zinc {

// y[r] += scale * dot.
struct AddScaledRow {
  float* y;
  float scale;

  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&dots)[1]) const { y[r] = fmaf(scale, dots[0], y[r]); }
};

// y[r] = Activation(gate, up), once, of the finished sums.
template <class Activation>
struct StoreGated {
  float* y;

  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&dots)[2]) const {
    y[r] = Activation::of(dots[0], dots[1]);
  }
};

}  // namespace zinc
