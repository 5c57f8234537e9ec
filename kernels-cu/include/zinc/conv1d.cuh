// Causal depthwise convolution of a channel over a ring of its past inputs.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/flagged.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// The taps of all models; a kernel's loops are unrolled for it.
constexpr uint32_t usual_taps = 4;

// The convolution of one channel; the thread that holds it owns the channel's column of the ring. The ring has
// d_conv - 1 slots of conv_channels raw inputs; `oldest` is the slot of the oldest one.
struct ChannelConvolution {
  const void* taps;
  float* ring;
  uint32_t taps_are_f16;
  uint32_t conv_channels;
  uint32_t d_conv;
  uint32_t channel;

  ZINC_DEVICE float tap(uint32_t j) const {
    return flagged_element(taps, uint64_t{channel} * d_conv + j, taps_are_f16);
  }

  ZINC_DEVICE float* in_slot(uint32_t slot) const { return ring + uint64_t{slot} * conv_channels + channel; }

  // The activated output for the next input. The input replaces the oldest of the ring.
  ZINC_DEVICE float next(float input, uint32_t oldest) const {
    const float sum = d_conv == usual_taps ? past_sum(usual_taps - 1, oldest) : past_sum(d_conv - 1, oldest);
    *in_slot(oldest) = input;
    return silu(fmaf(tap(d_conv - 1), input, sum));
  }

 private:
  // A `past` that is known when compiling lets all loads start at once.
  ZINC_DEVICE float past_sum(uint32_t past, uint32_t oldest) const {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < past; ++j) {
      const uint32_t slot = oldest + j < past ? oldest + j : oldest + j - past;
      sum = fmaf(tap(j), *in_slot(slot), sum);
    }
    return sum;
  }
};

// The convolution over n_tokens consecutive tokens in place, for d_conv <= max_taps; a lane owns the channel. Each of
// the block's `warps` warps owns a segment of consecutive tokens, which it walks through `unroll` at a time, with the
// last inputs in registers and the next ones on their way. What a warp reads outside its segment it reads before the
// block's only barrier, after which the inputs are overwritten: the inputs before its segment, and one of the inputs
// that return to the ring, each to the slot that the one-token kernel would have given it. Every thread of the block
// must call this.
template <unsigned warps, unsigned unroll, unsigned max_taps>
struct SegmentConvolution {
  static_assert(max_taps <= warps, "a warp returns at most one input to the ring");
  static constexpr unsigned history = max_taps - 1;

  ZINC_DEVICE static void run(const ChannelConvolution& c, bool exists, float* qkv, uint32_t n_tokens,
                              uint32_t oldest) {
    const uint32_t past = c.d_conv - 1;
    const uint32_t segment = n_tokens / warps + (n_tokens % warps != 0);
    const uint32_t first = min(uint64_t{warp_id()} * segment, uint64_t{n_tokens});
    const uint32_t end = min(uint64_t{first} + segment, uint64_t{n_tokens});
    float* const column = qkv + c.channel;

    float tap[max_taps] = {};
    // Inputs first - history .. first - 1, of which d_conv - 1 take part, then those of `unroll` tokens.
    float input[history + unroll] = {};
    float next[unroll] = {};
    float returned = 0.0f;
    const bool returns = exists && warp_id() < min(past, n_tokens);
    const uint32_t returned_token = n_tokens - 1 - warp_id();
    if (exists) {
#pragma unroll
      for (unsigned j = 0; j < history; ++j) {
        const unsigned back = history - j;
        if (back > past) continue;
        input[j] = back <= first ? column[uint64_t{first - back} * c.conv_channels]
                                 : *c.in_slot((oldest + first + past - back) % past);
      }
      if (returns) returned = column[uint64_t{returned_token} * c.conv_channels];
#pragma unroll
      for (unsigned i = 0; i < unroll; ++i) {
        if (first + i < end) next[i] = column[(uint64_t{first} + i) * c.conv_channels];
      }
#pragma unroll
      for (unsigned j = 0; j < max_taps; ++j) {
        if (max_taps - j <= c.d_conv) tap[j] = c.tap(j + c.d_conv - max_taps);
      }
    }
    __syncthreads();
    if (!exists) return;
    if (returns) *c.in_slot((oldest + uint64_t{returned_token}) % past) = returned;

    const uint64_t stride = c.conv_channels;
    float* at = column + first * stride;
    const float* ahead = at + unroll * stride;
    uint32_t left = end - first;
    for (; left >= 2 * unroll; left -= unroll) step<false>(c, tap, input, next, at, ahead, left);
    for (; left > 0; left -= min(left, unroll)) step<true>(c, tap, input, next, at, ahead, left);
  }

 private:
  // The outputs of the next `unroll` tokens at `at`, or of `left` if these are fewer and `checked`, and the inputs of
  // the `unroll` ones after them from `ahead` on, as far as they exist.
  template <bool checked>
  ZINC_DEVICE static void step(const ChannelConvolution& c, const float (&tap)[max_taps],
                               float (&input)[history + unroll], float (&next)[unroll], float*& at, const float*& ahead,
                               uint32_t left) {
    const uint64_t stride = c.conv_channels;
#pragma unroll
    for (unsigned i = 0; i < unroll; ++i) {
      input[history + i] = next[i];
      if (!checked || unroll + i < left) next[i] = *ahead;
      ahead += stride;
    }
#pragma unroll
    for (unsigned i = 0; i < unroll; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (unsigned j = 0; j < max_taps; ++j) {
        // An input that does not take part must not touch the sum even with a tap of 0, as it may be NaN.
        if (max_taps == usual_taps || max_taps - j <= c.d_conv) sum = fmaf(tap[j], input[i + j], sum);
      }
      if (!checked || i < left) *at = silu(sum);
      at += stride;
    }
#pragma unroll
    for (unsigned j = 0; j < history; ++j) input[j] = input[j + unroll];
  }
};

}  // namespace zinc
