// residual_rms_norm whose rows are also quantised. Grid: x over token rows; the block owns one row, a thread every
// blockDim.x-th group of four elements; eight neighbouring lanes hold one block of 32.
#include "zinc/residual_rms_norm_quant_q8_1.h"

#include "zinc/norm.cuh"
#include "zinc/quantize.cuh"

ZINC_KERNEL void __launch_bounds__(32 * residual_rms_norm_quant_q8_1_tile::max_warps, 1)
    residual_rms_norm_quant_q8_1(float* __restrict__ hidden, const float* __restrict__ residual,
                                 float* __restrict__ norm_out, const float* __restrict__ weights,
                                 uint32_t* __restrict__ packed, float2* __restrict__ scale_dsum,
                                 residual_rms_norm_quant_q8_1_push p) {
  zinc::wait_for_previous();
  const uint64_t row = uint64_t{blockIdx.x} * p.n;
  float* const stream = hidden + row;
  const float* const branch = residual + row;
  float* const out = norm_out + row;
  uint32_t* const packed_row = packed + uint64_t{blockIdx.x} * p.stride_packed;
  float2* const scale_row = scale_dsum + uint64_t{blockIdx.x} * p.blocks_per_token;
  const float scale = p.scale;
  const bool write_norm_out = p.write_norm_out != 0;
  // n is a multiple of 256, so a warp has all its lanes in the row or none.
  zinc::norm_spans<residual_rms_norm_quant_q8_1_tile::held, zinc::wide>(
      p.n, p.eps,
      [=](auto at) {
        return zinc::each([=](float b, float h) { return fmaf(scale, b, h); }, at.of(branch), at.of(stream));
      },
      [=](auto at, const auto& updated) { at.to(stream, updated); }, [=](auto at) { return at.of(stream); },
      [=](auto at) { return at.of(weights); },
      [=](auto at, const auto& v, const auto& w, float r) {
        const auto y = zinc::each([=](float a, float b) { return (b * a) * r; }, v, w);
        if (write_norm_out) at.to(out, y);
        const zinc::QuantBlock quants =
            zinc::quantize_block<zinc::DirectFactor>(make_float4(y.at[0], y.at[1], y.at[2], y.at[3]));
        const uint64_t word = at.first / 4;
        packed_row[word] = quants.word;
        if (word % zinc::quant_block_lanes == 0) {
          scale_row[word / zinc::quant_block_lanes] =
              make_float2(quants.scale, quants.scale * static_cast<float>(quants.sum));
        }
      });
}
