// Causal depthwise convolution of a channel over a ring of its past inputs.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/half.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// Element i of a tensor that holds f16 or f32, as a flag of the push block says.
ZINC_DEVICE float flagged_element(const void* tensor, uint64_t i, uint32_t is_f16) {
  return is_f16 != 0 ? half_to_float(static_cast<const uint16_t*>(tensor)[i]) : static_cast<const float*>(tensor)[i];
}

// The convolution of one channel; the thread that holds it owns the channel's column of the ring. The ring has
// d_conv - 1 slots of conv_channels raw inputs; `oldest` is the slot of the oldest one.
struct ChannelConvolution {
  const void* taps;
  float* ring;
  uint32_t taps_are_f16;
  uint32_t conv_channels;
  uint32_t d_conv;
  uint32_t channel;

  // The activated output for the next input. The input replaces the oldest of the ring.
  ZINC_DEVICE float next(float input, uint32_t oldest) const {
    const uint32_t past = d_conv - 1;
    const uint64_t first_tap = uint64_t{channel} * d_conv;
    float sum = 0.0f;
    for (uint32_t j = 0; j < past; ++j) {
      const uint32_t slot = oldest + j < past ? oldest + j : oldest + j - past;
      sum = fmaf(flagged_element(taps, first_tap + j, taps_are_f16), *in_slot(slot), sum);
    }
    sum = fmaf(flagged_element(taps, first_tap + past, taps_are_f16), input, sum);
    *in_slot(oldest) = input;
    return silu(sum);
  }

  ZINC_DEVICE float* in_slot(uint32_t slot) const { return ring + uint64_t{slot} * conv_channels + channel; }
};

// ChannelConvolution over n_tokens consecutive tokens in place, for d_conv <= max_taps. The block owns 32 channels, a
// lane one of them. It stages the raw inputs of `warps * warp_tokens` tokens, with the d_conv - 1 before them, in
// `window`, so that all warps can overwrite their tokens at once; the history moves along with the window and returns
// to the ring at the end, each input in the slot that the one-token kernel would have given it. Every thread of the
// block must call this.
template <unsigned warps, unsigned warp_tokens, unsigned max_taps>
struct WindowConvolution {
  static constexpr unsigned tokens = warps * warp_tokens;
  static_assert(tokens >= max_taps, "the history moves without overlap");
  using Window = float[max_taps - 1 + tokens][warp_size];

  ZINC_DEVICE static void run(const ChannelConvolution& c, bool exists, float* qkv, uint64_t n_tokens, uint32_t oldest,
                              Window& window) {
    const uint32_t past = c.d_conv - 1;
    const unsigned lane = lane_id();
    float* const column = qkv + c.channel;
    float tap[max_taps];
#pragma unroll
    for (unsigned j = 0; j < max_taps; ++j) {
      const uint64_t at = uint64_t{c.channel} * c.d_conv + j;
      tap[j] = exists && j < c.d_conv ? flagged_element(c.taps, at, c.taps_are_f16) : 0.0f;
    }
    for (uint32_t j = warp_id(); j < past; j += warps)
      window[j][lane] = exists ? *c.in_slot((oldest + j) % past) : 0.0f;

    for (uint64_t first = 0; first < n_tokens; first += tokens) {
      const uint32_t present = static_cast<uint32_t>(min(uint64_t{tokens}, n_tokens - first));
#pragma unroll
      for (unsigned i = 0; i < warp_tokens; ++i) {
        const uint32_t t = i * warps + warp_id();
        if (exists && t < present) window[past + t][lane] = column[(first + t) * c.conv_channels];
      }
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < warp_tokens; ++i) {
        const uint32_t t = i * warps + warp_id();
        if (!exists || t >= present) continue;
        float sum = 0.0f;
#pragma unroll
        for (unsigned j = 0; j < max_taps; ++j) {
          if (j < c.d_conv) sum = fmaf(tap[j], window[t + j][lane], sum);
        }
        column[(first + t) * c.conv_channels] = silu(sum);
      }
      __syncthreads();
      // The last `past` inputs become the history. With fewer tokens than that the moves overlap, so one warp makes
      // them in ascending order.
      if (exists && warp_id() == 0) {
        for (uint32_t j = 0; j < past; ++j) window[j][lane] = window[present + j][lane];
      }
      __syncthreads();
    }
    const uint64_t next_oldest = oldest + n_tokens;
    for (uint32_t j = warp_id(); j < past; j += warps) {
      if (exists) *c.in_slot(static_cast<uint32_t>((next_oldest + j) % past)) = window[j][lane];
    }
  }
};

}  // namespace zinc
