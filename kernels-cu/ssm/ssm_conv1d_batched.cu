// The causal depthwise convolution and SiLU over consecutive tokens, in place. Grid: x over groups of 32 channels; a
// lane owns one channel, a warp a segment of the tokens. Kernels of more than max_taps taps, which no model has, take
// one warp and the ring in memory, token after token.
#include "zinc/ssm_conv1d_batched.h"

#include "zinc/conv1d.cuh"

ZINC_KERNEL void __launch_bounds__(32 * ssm_conv1d_batched_tile::warps, 1)
    ssm_conv1d_batched(float* qkv, const void* __restrict__ kernel, float* state, ssm_conv1d_batched_push p) {
  zinc::wait_for_previous();
  using namespace ssm_conv1d_batched_tile;
  const uint64_t channel = uint64_t{blockIdx.x} * zinc::warp_size + zinc::lane_id();
  const bool exists = channel < p.conv_channels;
  const zinc::ChannelConvolution convolution = {kernel,          state,    p.kernel_is_f16,
                                                p.conv_channels, p.d_conv, static_cast<uint32_t>(channel)};
  if (p.d_conv == zinc::usual_taps) {
    zinc::SegmentConvolution<warps, unroll, zinc::usual_taps>::run(convolution, exists, qkv, p.n_tokens,
                                                                   p.state_offset);
  } else if (p.d_conv <= max_taps) {
    zinc::SegmentConvolution<warps, 1, max_taps>::run(convolution, exists, qkv, p.n_tokens, p.state_offset);
  } else if (exists && zinc::warp_id() == 0) {
    uint32_t oldest = p.state_offset;
    for (uint64_t t = 0; t < p.n_tokens; ++t) {
      float* const element = qkv + t * p.conv_channels + channel;
      *element = convolution.next(*element, oldest);
      oldest = oldest + 1 < p.d_conv - 1 ? oldest + 1 : 0;
    }
  }
}
