// One token of the causal depthwise convolution, then SiLU. Grid: x over channels; a thread owns one channel and its
// column of the ring.
#include "zinc/ssm_conv1d.h"

#include "zinc/conv1d.cuh"

ZINC_KERNEL void __launch_bounds__(ssm_conv1d_tile::threads)
    ssm_conv1d(const float* __restrict__ input, const void* __restrict__ kernel, float* __restrict__ state,
               float* __restrict__ output, ssm_conv1d_push p) {
  zinc::wait_for_previous();
  const uint64_t channel = uint64_t{blockIdx.x} * ssm_conv1d_tile::threads + threadIdx.x;
  if (channel >= p.conv_channels) return;
  const zinc::ChannelConvolution convolution = {kernel,          state,    p.kernel_is_f16,
                                                p.conv_channels, p.d_conv, static_cast<uint32_t>(channel)};
  output[channel] = convolution.next(input[channel], p.state_offset);
}
