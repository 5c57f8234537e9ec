// Rotary position embedding: angles, their sine and cosine, and the rotation of one head by a block.
#pragma once
#include "zinc/span.cuh"

namespace zinc {

struct Rotation {
  float cos;
  float sin;
};

// Sine and cosine of an angle in radians. The absolute error stays near 1e-7 for |angle| < 2^22; beyond, it grows with
// the spacing of the angles themselves, and the results stay in [-1, 1]. NaN and infinity give NaN.
// The library's sinf and cosf reduce large angles through a table in local memory, which this avoids: multiples of pi/2
// are subtracted in three parts whose short leading part makes the first product exact (Cody and Waite), with a second
// pass for what is left of huge angles. The polynomials are the minimax ones of the Cephes library for +-pi/4.
ZINC_DEVICE Rotation sin_cos(float angle) {
  constexpr float two_over_pi = 0.636619772f;
  constexpr float half_pi = 1.57079637f;
  constexpr float half_pi_high = 1.57079601f;  // 21 significant bits
  constexpr float half_pi_middle = 3.13916473e-7f;
  constexpr float half_pi_low = 5.39030253e-15f;

  const float turns = rintf(angle * two_over_pi);
  float r = fmaf(-turns, half_pi_high, angle);
  r = fmaf(-turns, half_pi_middle, r);
  r = fmaf(-turns, half_pi_low, r);
  const float rest = rintf(r * two_over_pi);
  r = fmaf(-rest, half_pi, r);
  const float total = turns + rest;
  const int quadrant = __float2int_rn(total - 4.0f * floorf(0.25f * total));

  const float r2 = r * r;
  const float s = fmaf(r * r2, fmaf(fmaf(-1.9515295891e-4f, r2, 8.3321608736e-3f), r2, -1.6666654611e-1f), r);
  const float c_tail = fmaf(fmaf(2.443315711809948e-5f, r2, -1.388731625493765e-3f), r2, 4.166664568298827e-2f);
  const float c = fmaf(r2 * r2, c_tail, fmaf(-0.5f, r2, 1.0f));

  const bool swapped = quadrant & 1;
  const float sin_magnitude = swapped ? c : s;
  const float cos_magnitude = swapped ? s : c;
  return {(quadrant + 1) & 2 ? -cos_magnitude : cos_magnitude, quadrant & 2 ? -sin_magnitude : sin_magnitude};
}

// The rotations of one token position: pair i of a head turns by position * f_i radians.
struct RotaryAngles {
  const float* inv_freq;  // f_i, read when freq_base_bits is 0
  uint32_t freq_base_bits;
  uint32_t attn_scale_bits;  // factor on sine and cosine, 0 means 1
  uint32_t rope_dim;
  uint32_t position;

  ZINC_DEVICE Rotation of_pair(uint32_t i) const {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const float frequency = freq_base_bits == 0 ? inv_freq[i] : powf(__uint_as_float(freq_base_bits), -exponent);
    const Rotation unit = sin_cos(static_cast<float>(position) * frequency);
    const float scale = attn_scale_bits == 0 ? 1.0f : __uint_as_float(attn_scale_bits);
    return {scale * unit.cos, scale * unit.sin};
  }
};

// Rotates heads of `stride` elements, one row of x and y each, by the angles of one token: the pairs (i, i + rope_dim /
// 2) of a head are turned, its elements from rope_dim on are passed unchanged. A thread owns the spans threadIdx.x,
// threadIdx.x + blockDim.x, ... of the pairs and then of the rest, in every head first, first + step, ... below heads:
// it finds the sine and cosine of its pairs once. It has the loads of `ahead` heads in flight together. It loads both
// halves of a span before it stores either, so that y may be x.
template <unsigned width, unsigned ahead>
ZINC_DEVICE void rotate_spans(const float* x, float* y, uint32_t stride, const RotaryAngles& angles, uint32_t first,
                              uint32_t step, uint32_t heads) {
  using At = Span<width>;
  const uint32_t half = angles.rope_dim / 2;
  const uint32_t work = stride - half;
  for (uint64_t i = threadIdx.x * width; i < work; i += blockDim.x * width) {
    if (i < half) {
      Rotation turn[width];
#pragma unroll
      for (unsigned e = 0; e < width; ++e) turn[e] = angles.of_pair(static_cast<uint32_t>(i) + e);
      for (uint32_t head = first; head < heads; head += ahead * step) {
        Pack<float, width> low[ahead];
        Pack<float, width> high[ahead];
#pragma unroll
        for (unsigned a = 0; a < ahead; ++a) {
          if (head + a * step < heads) {
            const At at = {uint64_t{head + a * step} * stride + i};
            low[a] = at.of(x);
            high[a] = At{at.first + half}.of(x);
          }
        }
#pragma unroll
        for (unsigned a = 0; a < ahead; ++a) {
          if (head + a * step < heads) {
            const At at = {uint64_t{head + a * step} * stride + i};
            Pack<float, width> turned_low;
            Pack<float, width> turned_high;
#pragma unroll
            for (unsigned e = 0; e < width; ++e) {
              turned_low.at[e] = low[a].at[e] * turn[e].cos - high[a].at[e] * turn[e].sin;
              turned_high.at[e] = low[a].at[e] * turn[e].sin + high[a].at[e] * turn[e].cos;
            }
            at.to(y, turned_low);
            At{at.first + half}.to(y, turned_high);
          }
        }
      }
    } else if (x != y) {
      for (uint32_t head = first; head < heads; head += ahead * step) {
        Pack<float, width> passed[ahead];
#pragma unroll
        for (unsigned a = 0; a < ahead; ++a) {
          if (head + a * step < heads) passed[a] = At{uint64_t{head + a * step} * stride + i + half}.of(x);
        }
#pragma unroll
        for (unsigned a = 0; a < ahead; ++a) {
          if (head + a * step < heads) At{uint64_t{head + a * step} * stride + i + half}.to(y, passed[a]);
        }
      }
    }
  }
}

}  // namespace zinc
