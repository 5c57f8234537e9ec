// f32 vectors as pairs of binary16 numbers for the tensor cores, one vector at a time: the eight columns of an operand
// are both numbers of the columns of four blocks, one for each lane of a quad. Where a block is not that of the lane
// the operand is zero, so that each lane finds the sums of its own blocks.
//
// With group = lane / 4 and part = lane % 4, a lane has quants of row `group` and `group` + 8 in A, and gets the sums
// of these rows with both numbers of its blocks' columns; see mma_half. Either a lane has the quants of its own blocks,
// eight words of four columns each; or the lanes of a quad deal out the words of all (`across`): of each half of a
// block a lane has word `part`.
#pragma once

#include "zinc/dmmv_planes.cuh"
#include "zinc/mma.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// 256 columns: eight blocks of 32, two for each part of a quad. Order says which, and in which order words have the
// columns of a block:
//   has_minimum              whether sums of columns are needed
//   block(part, i)           the i-th of the part
//   rotates                  whether the first columns may be the last ones instead. Then also
//   rotation_columns         of how many, 16 or 32
//   most_rotation            2, or 3
//   rotation(step, block)    how many: the words begin with the column of that number
//   place(block, word)       where four columns are stored: the word of the lane, or `across` two words for each lane,
//                            of both halves
// The bytes 0 and 2 of a word are the first operand register, 1 and 3 the second one.
// `zeros` says whether 16 bytes of zeros follow the numbers of each block.
template <class Order, bool zeros = false>
struct alignas(16) SplitStep {
  static constexpr unsigned blocks = step_columns / 32;
  static constexpr unsigned words = 8;
  static constexpr unsigned lane_columns = step_columns / warp_size;
  static constexpr unsigned block_lanes = 32 / lane_columns;

  static constexpr unsigned zeros_at = 2 * words * sizeof(uint2);
  static constexpr unsigned block_bytes = zeros_at + (zeros ? 16 : 0);

  uint2 pairs[blocks][block_bytes / sizeof(uint2)];
  float scale[blocks];
  float sum[blocks];

  // Stores the columns 8 * lane .. 8 * lane + 7 of a row's step. All lanes of a warp call it together. True as
  // Planes::fill is.
  ZINC_DEVICE bool put(const float4& x0, const float4& x1, [[maybe_unused]] uint32_t step = 0) {
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
      constexpr unsigned lanes = Order::rotation_columns / lane_columns;
      constexpr unsigned most = Order::most_rotation;
      const unsigned next = lane / lanes * lanes + (lane + 1) % lanes;
      float all[lane_columns + most];
#pragma unroll
      for (unsigned i = 0; i < lane_columns + most; ++i) {
        all[i] = i < lane_columns ? x[i % lane_columns] : __shfl_sync(full_warp, x[i % lane_columns], next);
      }
      const unsigned rotation = Order::rotation(step, block);
#pragma unroll
      for (unsigned i = 0; i < lane_columns + most - 2; ++i) all[i] = (rotation & 2) != 0 ? all[i + 2] : all[i];
      if constexpr (most > 2) {
#pragma unroll
        for (unsigned i = 0; i < lane_columns; ++i) all[i] = (rotation & 1) != 0 ? all[i + 1] : all[i];
      }
#pragma unroll
      for (unsigned i = 0; i < lane_columns; ++i) x[i] = all[i];
    }
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      uint2 high;
      uint2 low;
      const float* const four = x + 4 * i;
      split(four[0] * to_halves, four[2] * to_halves, high.x, low.x);
      split(four[1] * to_halves, four[3] * to_halves, high.y, low.y);
      const unsigned at = Order::place(block, 2 * own + i);
      pairs[block][at] = high;
      pairs[block][words + at] = low;
    }
    if constexpr (zeros) {
      if (own < 2) pairs[block][2 * words + own] = make_uint2(0, 0);
    }
    return unfit;
  }

  // The operands of the i-th blocks of the parts.
  ZINC_DEVICE void load(uint32_t (&b)[words][2], unsigned i) const {
    const unsigned part = lane_id() % 4;
    const unsigned column = lane_id() / 4;
    const uint4* const from = reinterpret_cast<const uint4*>(pairs[Order::block(part, i)] + column % 2 * words);
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

// What a lane reads of a step with zeros, where blocks of a part are as far apart for all parts.
template <class Order, bool across>
struct SplitLane {
  using Step = SplitStep<Order, true>;
  static constexpr unsigned words = Step::words;
  static constexpr unsigned sets = words / 2;  // of two words, 16 bytes

  SharedAddress from[sets];

  explicit ZINC_DEVICE SplitLane(const uint8_t* step) : from{at(step, 0), at(step, 1), at(step, 2), at(step, 3)} {}

  // The operands of the i-th blocks of the parts. `across`, the words are word `part` of the first halves of the four
  // blocks, then of the second ones.
  ZINC_DEVICE void load(uint32_t (&b)[words][2], unsigned i) const {
    const unsigned distance = (Order::block(0, 1) - Order::block(0, 0)) * Step::block_bytes;
#pragma unroll
    for (unsigned j = 0; j < sets; ++j) {
      const uint4 two = (from[j] + i * distance).load4();
      const unsigned first = across ? j : 2 * j;
      const unsigned second = across ? j + sets : 2 * j + 1;
      b[first][0] = two.x;
      b[first][1] = two.y;
      b[second][0] = two.z;
      b[second][1] = two.w;
    }
  }

 private:
  static ZINC_DEVICE SharedAddress at(const uint8_t* step, unsigned set) {
    const unsigned part = lane_id() % 4;
    const unsigned column = lane_id() / 4;
    const unsigned owner = across ? set : part;
    const unsigned own = column % 2 * (Step::zeros_at / 2) + (across ? part : set) * 16;
    return SharedAddress(step + (Order::block(owner, 0) * Step::block_bytes +
                                 (column / 2 == owner ? own : static_cast<unsigned>(Step::zeros_at))),
                         false);
  }
};

}  // namespace zinc
