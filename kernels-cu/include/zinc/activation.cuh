// The scalar functions of gates and activations, as the contracts write them, with the accurate exponential.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// a / b for a b of at least 1, to 2 units in the last place; 0 times a for a b above 2^126. The division of the
// language is correctly rounded, for which it branches: no load would be issued ahead of it.
ZINC_DEVICE float quotient(float a, float b) { return __fdividef(a, b); }

// 1 / (1 + exp(-x)): 0 for a large negative x (the exponential overflows to infinity), NaN for NaN.
ZINC_DEVICE float sigmoid(float x) { return quotient(1.0f, 1.0f + expf(-x)); }

// x * sigmoid(x) as one quotient: -0 for a large negative x, NaN for -infinity (-infinity / infinity).
ZINC_DEVICE float silu(float x) { return quotient(x, 1.0f + expf(-x)); }

// 0.5 * x * (1 + tanh(z)), z = sqrt(2 / pi) * (x + 0.044715 * x^3) clamped to +-15. Since 1 + tanh(z) = 2 * sigmoid(2 *
// z), the sigmoid gives the same value without the cancellation of 1 + tanh(z) for negative z. A NaN passes through x.
ZINC_DEVICE float gelu_tanh(float x) {
  constexpr float sqrt_2_over_pi = 0.7978845608f;
  constexpr float cubic = 0.044715f;
  constexpr float saturated = 15.0f;
  const float z = sqrt_2_over_pi * (x + cubic * x * x * x);
  return x * sigmoid(2.0f * fminf(fmaxf(z, -saturated), saturated));
}

// g * sigmoid(1.702 * g) * (u + 1) with g = gate at most 7 and u = up within +-7. Written with comparisons, since fminf
// and fmaxf would replace a NaN by the limit.
ZINC_DEVICE float swiglu_oai(float gate, float up) {
  constexpr float limit = 7.0f;
  constexpr float steepness = 1.702f;
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return quotient(g, 1.0f + expf(-steepness * g)) * (u + 1.0f);
}

// ln(1 + exp(x)). Above 20 it equals x to f32 rounding, and the exponential is kept from overflowing.
ZINC_DEVICE float softplus(float x) {
  constexpr float linear_above = 20.0f;
  return x > linear_above ? x : log1pf(expf(x));
}

}  // namespace zinc
