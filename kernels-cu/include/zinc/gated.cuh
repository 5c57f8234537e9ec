// What a gated feed-forward layer makes of a gate and an up value.
#pragma once

#include "zinc/activation.cuh"

namespace zinc {

struct SwiGlu {
  static ZINC_DEVICE float of(float gate, float up) { return silu(gate) * up; }
};

struct GeGlu {
  static ZINC_DEVICE float of(float gate, float up) { return gelu_tanh(gate) * up; }
};

}  // namespace zinc
