// Causal depthwise convolution of a channel over a ring of its past inputs.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/half.cuh"

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

 private:
  ZINC_DEVICE float* in_slot(uint32_t slot) const { return ring + uint64_t{slot} * conv_channels + channel; }
};

}  // namespace zinc
