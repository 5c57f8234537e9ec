// RMS norm of a head followed by its rotary embedding.
#pragma once
#include "zinc/norm.cuh"
#include "zinc/rope.cuh"

namespace zinc {

// Elements of a head to a lane of the blocks that own one: 8 warps hold a head of
// 512 elements in registers.
constexpr unsigned norm_rope_held = 2;

// to = the rotated norm of the head `from`; both may be the same. The block owns the head; a thread every blockDim.x-th
// pair and every blockDim.x-th of the elements behind them. What a head needs besides its own elements is fetched, and
// the sines and cosines are found, before the reduction.
ZINC_DEVICE void norm_and_rotate(const float* from, const float* __restrict__ weight, float* to, uint32_t head_dim,
                                 const RotaryAngles& angles, float eps) {
  ZINC_SHARED(float[max_block_warps], partial);
  constexpr unsigned held_pairs = norm_rope_held / 2;
  const uint32_t half = angles.rope_dim / 2;
  const uint32_t tail = angles.rope_dim;
  const uint64_t more_pairs = threadIdx.x + uint64_t{held_pairs} * blockDim.x;
  const uint64_t more_tail = uint64_t{tail} + threadIdx.x + norm_rope_held * blockDim.x;
  struct Pair {
    float low;
    float high;
  };
  Pair value[held_pairs];
  Pair scale[held_pairs];
  Rotation turn[held_pairs];
  float passed[norm_rope_held];
  float passed_scale[norm_rope_held];

  float squares = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < held_pairs; ++j) {
    const uint32_t i = threadIdx.x + j * blockDim.x;
    value[j] = i < half ? Pair{from[i], from[i + half]} : Pair{0.0f, 0.0f};
    scale[j] = i < half ? Pair{weight[i], weight[i + half]} : Pair{0.0f, 0.0f};
  }
#pragma unroll
  for (unsigned j = 0; j < norm_rope_held; ++j) {
    const uint64_t i = uint64_t{tail} + threadIdx.x + j * blockDim.x;
    passed[j] = i < head_dim ? from[i] : 0.0f;
    passed_scale[j] = i < head_dim ? weight[i] : 0.0f;
  }
#pragma unroll
  for (unsigned j = 0; j < held_pairs; ++j) {
    const uint32_t i = threadIdx.x + j * blockDim.x;
    if (i < half) turn[j] = angles.of_pair(i);
  }
#pragma unroll
  for (unsigned j = 0; j < held_pairs; ++j) {
    squares = fmaf(value[j].low, value[j].low, fmaf(value[j].high, value[j].high, squares));
  }
#pragma unroll
  for (unsigned j = 0; j < norm_rope_held; ++j) squares = fmaf(passed[j], passed[j], squares);
  for (uint64_t i = more_pairs; i < half; i += blockDim.x) {
    squares = fmaf(from[i], from[i], fmaf(from[i + half], from[i + half], squares));
  }
  for (uint64_t i = more_tail; i < head_dim; i += blockDim.x) squares = fmaf(from[i], from[i], squares);

  const float r = inverse_rms(row_sum(squares, partial), head_dim, eps);
  const auto store_pair = [=](uint32_t i, Pair v, Pair w, Rotation t) {
    const float low = w.low * (v.low * r);
    const float high = w.high * (v.high * r);
    to[i] = low * t.cos - high * t.sin;
    to[i + half] = low * t.sin + high * t.cos;
  };
#pragma unroll
  for (unsigned j = 0; j < held_pairs; ++j) {
    const uint32_t i = threadIdx.x + j * blockDim.x;
    if (i < half) store_pair(i, value[j], scale[j], turn[j]);
  }
#pragma unroll
  for (unsigned j = 0; j < norm_rope_held; ++j) {
    const uint64_t i = uint64_t{tail} + threadIdx.x + j * blockDim.x;
    if (i < head_dim) to[i] = passed_scale[j] * (passed[j] * r);
  }
  for (uint64_t at = more_pairs; at < half; at += blockDim.x) {
    const uint32_t i = static_cast<uint32_t>(at);
    store_pair(i, {from[i], from[i + half]}, {weight[i], weight[i + half]}, angles.of_pair(i));
  }
  for (uint64_t i = more_tail; i < head_dim; i += blockDim.x) to[i] = weight[i] * (from[i] * r);
}

}  // namespace zinc
