// f32 vectors as pairs of binary16 numbers for the tensor cores, one vector at a time: the eight columns of an operand
// are both parts of four blocks, and a lane of the other operand has a block of its own. Where the lane's block is not
// that of the column the operand is zero, so that each lane finds the sums of the blocks that it has itself.
//
// With group = lane / 4 and part = lane % 4, a lane has quants of row `group` and `group` + 8 in A, and gets the sums
// of these rows with both parts of the vector; see mma_half.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/mma.cuh"

namespace zinc {

// 256 columns: eight blocks of 32, two for each part of a quad. Order says which, and in which order a lane has the
// columns of a block, as words of four:
//   block(part, i)           the i-th of the part
//   block_part(block)        the part whose it is
//   rotated(block)           whether the words begin with the third column, and the last ends with the first two
//   place(block, word)       which word of the lane that is
// The bytes 0 and 2 of a word are the first operand register, 1 and 3 the second one.
template <class Order>
struct alignas(16) SplitStep {
  static constexpr unsigned blocks = step_columns / 32;
  static constexpr unsigned words = 8;
  static constexpr unsigned lane_columns = step_columns / warp_size;
  static constexpr unsigned block_lanes = 32 / lane_columns;

  uint2 pairs[blocks][2][words];
  float scale[blocks];
  float sum[blocks];

  // Stores the columns 8 * lane .. 8 * lane + 7. All lanes of a warp call it together. True as Planes::fill is.
  ZINC_DEVICE bool put(const float4& x0, const float4& x1) {
    constexpr float outlier = 16384.0f;
    float x[lane_columns] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    const auto [exponent, unfit] = group_scale<block_lanes>(x, outlier);
    const float to_halves = __uint_as_float((127u + 14 + 127 - exponent) << 23);
    const unsigned lane = lane_id();
    const unsigned block = lane / block_lanes;
    const unsigned own = lane % block_lanes;
    if constexpr (Order::has_minimum) {
      const float total = warp_sum<block_lanes>(((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
      if (own == 0) sum[block] = total;
    }
    if (own == 0) scale[block] = __uint_as_float((exponent - 14) << 23);
    if constexpr (Order::rotates) {
      const unsigned next = block * block_lanes + (own + 1) % block_lanes;
      const float after[2] = {__shfl_sync(full_warp, x[0], next), __shfl_sync(full_warp, x[1], next)};
      if (Order::rotated(block)) {
#pragma unroll
        for (unsigned i = 0; i < lane_columns; ++i)
          x[i] = i + 2 < lane_columns ? x[(i + 2) % lane_columns] : after[i % 2];
      }
    }
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      uint2 high;
      uint2 low;
      const float* const four = x + 4 * i;
      split(four[0] * to_halves, four[2] * to_halves, high.x, low.x);
      split(four[1] * to_halves, four[3] * to_halves, high.y, low.y);
      const unsigned at = Order::place(block, 2 * own + i);
      pairs[block][0][at] = high;
      pairs[block][1][at] = low;
    }
    return unfit;
  }

  // The operands of the i-th blocks of the parts.
  ZINC_DEVICE void load(uint32_t (&b)[words][2], unsigned i) const {
    const unsigned part = lane_id() % 4;
    const unsigned column = lane_id() / 4;
    const uint4* const from = reinterpret_cast<const uint4*>(pairs[Order::block(part, i)][column % 2]);
    const bool own = column / 2 == part;
#pragma unroll
    for (unsigned w = 0; w < words; w += 2) {
      const uint4 two = own ? from[w / 2] : make_uint4(0, 0, 0, 0);
      b[w][0] = two.x;
      b[w][1] = two.y;
      b[w + 1][0] = two.z;
      b[w + 1][1] = two.w;
    }
  }

 private:
  static ZINC_DEVICE void split(float a, float b, uint32_t& high, uint32_t& low) {
    high = floats_to_halves(a, b);
    low = floats_to_halves(a - half_to_float(static_cast<uint16_t>(high)),
                           b - half_to_float(static_cast<uint16_t>(high >> 16)));
  }
};

}  // namespace zinc
