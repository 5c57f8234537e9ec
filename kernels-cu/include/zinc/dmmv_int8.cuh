// Matrix-vector products with a vector that is already quantized to int8 blocks: exact integer sums within the columns
// that share a scale, f32 between them.
#pragma once

#include "zinc/dmmv_rows.cuh"
#include "zinc/half.cuh"
#include "zinc/quant/q8_0.cuh"

namespace zinc {

// One block of a q8_1 activation vector as quantize_q8_1 writes it: 32 signed bytes, f16 scale, f16 sum. (GGML's own
// block_q8_1 has the two halves first.)
struct Q8_1Activations {
  static constexpr unsigned block_bytes = 36;
  static constexpr unsigned words = 8;

  uint32_t quants[words];
  float scale;

  // Blocks are 4-byte aligned.
  explicit ZINC_DEVICE Q8_1Activations(const uint8_t* block) {
#pragma unroll
    for (unsigned i = 0; i < words; ++i) quants[i] = load_u32(block + 4 * i);
    scale = half_to_float(load_u16(block + 4 * words));
  }
};
static_assert(Q8_1Activations::block_bytes == 32 + 2 + 2);

// This lane's share of the dot products of `rows` rows of `blocks` blocks; lane l takes the blocks l, l + 32, ...
template <unsigned rows>
ZINC_DEVICE void dot_q8_1(float (&sum)[rows][1], const uint8_t* const (&row)[rows], const uint8_t* x, uint32_t blocks) {
  for (uint32_t b = lane_id(); b < blocks; b += warp_size) {
    Q8_0::Unit weights[rows];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) weights[r] = Q8_0::load<false>(row[r] + uint64_t{b} * Q8_0::block_bytes, 0);
    const Q8_1Activations activations(x + uint64_t{b} * Q8_1Activations::block_bytes);
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      int32_t products = 0;
#pragma unroll
      for (unsigned i = 0; i < Q8_1Activations::words; ++i) {
        products =
            __dp4a(static_cast<int32_t>(weights[r].bytes[i]), static_cast<int32_t>(activations.quants[i]), products);
      }
      // The product of the two 11-bit scales is exact.
      sum[r][0] = fmaf(half_to_float(weights[r].d) * activations.scale, static_cast<float>(products), sum[r][0]);
    }
  }
}

// The plain contract with a q8_1 vector: y[r] = dot, or y[r] += dot where acc_mode is not 0.
template <class Shape, class Push>
ZINC_DEVICE void dmmv_q8_1(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  const uint8_t* const matrix[] = {weights + p.a_offset};
  const uint8_t* const activations = x + p.x_offset;
  for_row_groups<Shape>(
      matrix, row_bytes<Q8_0>(p.k), p.m, blockIdx.x, gridDim.x,
      [&](float (&sum)[Shape::rows][1], const uint8_t* const(&row)[Shape::rows]) {
        dot_q8_1(sum, row, activations, p.k / Q8_0::block_columns);
      },
      StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

// This lane's share for formats with minimums; lane l takes the units l, l + 32, ... A run is one half of an activation
// block, whose stored sum the first half accounts for.
template <bool wide, class Format, unsigned rows>
ZINC_DEVICE void dot_units_q8_1(float (&sum)[rows][1], const uint8_t* const (&row)[rows], const uint8_t* x,
                                uint32_t units) {
  static_assert(Format::has_minimum && Format::run_distance % unit_columns == 0);
  constexpr unsigned block_units = Format::block_columns / unit_columns;
  constexpr unsigned run_bit = Format::run_distance / run_columns;
  for (uint32_t unit = lane_id(); unit < units; unit += warp_size) {
    typename Format::Unit weights[rows];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const uint64_t block = unit / block_units;
      weights[r] = Format::template load<wide>(row[r] + block * Format::block_bytes, unit % block_units);
    }
#pragma unroll
    for (unsigned run = 0; run < 2; ++run) {
      // The inverse of how runs become units.
      const uint32_t group = unit / run_bit * (2 * run_bit) + run * run_bit + unit % run_bit;
      const bool upper_half = group % 2 != 0;
      const uint8_t* const block = x + uint64_t{group / 2} * Q8_1Activations::block_bytes;
      uint32_t quants[run_words];
#pragma unroll
      for (unsigned i = 0; i < run_words; ++i) quants[i] = load_u32(block + (upper_half ? run_columns : 0) + 4 * i);
      const float scale = half_to_float(load_u16(block + 4 * Q8_1Activations::words));
      const float block_sum = half_to_float(load_u16(block + 4 * Q8_1Activations::words + 2));
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        const auto factors = weights[r].scales();
        int32_t products = 0;
#pragma unroll
        for (unsigned i = 0; i < run_words; ++i) {
          products = __dp4a(static_cast<int32_t>(Format::Quants::to_int8(weights[r].word(run, i))),
                            static_cast<int32_t>(quants[i]), products);
        }
        sum[r][0] = fmaf(factors.scale[run] * scale, static_cast<float>(products), sum[r][0]);
        if (!upper_half) sum[r][0] = fmaf(-factors.minimum[run], block_sum, sum[r][0]);
      }
    }
  }
}

// The plain contract for a format with minimums and a q8_1 vector.
template <class Format, class Shape, class Push>
ZINC_DEVICE void dmmv_units_q8_1(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  const uint8_t* const matrix[] = {weights + p.a_offset};
  const uint8_t* const activations = x + p.x_offset;
  const bool wide = is_aligned(matrix[0], Format::wide_alignment);
  for_row_groups<Shape>(
      matrix, row_bytes<Format>(p.k), p.m, blockIdx.x, gridDim.x,
      [&](float (&sum)[Shape::rows][1], const uint8_t* const(&row)[Shape::rows]) {
        if (wide) {
          dot_units_q8_1<true, Format>(sum, row, activations, p.k / unit_columns);
        } else {
          dot_units_q8_1<false, Format>(sum, row, activations, p.k / unit_columns);
        }
      },
      StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

}  // namespace zinc
