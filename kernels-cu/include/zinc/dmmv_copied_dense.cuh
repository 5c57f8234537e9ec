// Products of small f16 matrices with one vector, whose rows come to shared memory whole (copied_rows.cuh), in f32. A
// lane has eight neighbouring columns of all rows, and those of the vector in registers.
#pragma once

#include "zinc/copied_rows.cuh"
#include "zinc/dmmv_dense.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

struct CopiedF16 {
  static constexpr unsigned step_bytes = step_columns * DenseF16::bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned pitch = copied_warps * step_bytes;
  static constexpr unsigned tile_rows = 4;
  static constexpr unsigned room = 6;
  static constexpr unsigned room_of_two = 6;
  static constexpr unsigned ahead = room;
  static constexpr unsigned ahead_of_two = room_of_two;

  static constexpr unsigned lane_columns = step_columns / warp_size;

  uint4 rows[tile_rows];

  ZINC_DEVICE void load(SharedAddress lane_row) {
#pragma unroll
    for (unsigned r = 0; r < tile_rows; ++r) rows[r] = (lane_row + r * pitch).load4();
  }

  ZINC_DEVICE void add_to(float (&sum)[tile_rows], const float4 (&columns)[2]) const {
    const float x[lane_columns] = {columns[0].x, columns[0].y, columns[0].z, columns[0].w,
                                   columns[1].x, columns[1].y, columns[1].z, columns[1].w};
#pragma unroll
    for (unsigned r = 0; r < tile_rows; ++r) {
      const uint32_t pairs[lane_columns / 2] = {rows[r].x, rows[r].y, rows[r].z, rows[r].w};
#pragma unroll
      for (unsigned i = 0; i < lane_columns; ++i) {
        sum[r] = fmaf(half_to_float(static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16))), x[i], sum[r]);
      }
    }
  }
};

// y[r] = dot, or y[r] += dot where acc_mode is not 0.
template <class Copied, class Push>
ZINC_DEVICE void dmmv_copied_dense(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  using Terms = FewMatrices<1>;
  using Work = CopiedWork<Copied, Terms>;
  constexpr unsigned rows = Copied::tile_rows;
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  // Of each warp, sums of all rows of the block.
  float* const sums = reinterpret_cast<float*>(shared);
  constexpr unsigned sum_bytes = copied_warps * copied_rows * sizeof(float);
  const uint32_t steps = p.k / step_columns;
  const Terms terms{{weights + p.a_offset}, at_byte<float>(x, p.x_offset), p.k};
  const EarlyReads reads;
  const Work work(terms, p.m, shared + sum_bytes, steps > copied_warps);
  work.begin();
  const unsigned warp = warp_id();
  const unsigned lane = lane_id();
  const SharedAddress lane_rows = SharedAddress(work.rows) + (warp * Copied::step_bytes + 16 * lane);
  const uint32_t count = work.count();
  Copied own;
  const auto take = [&](uint32_t number) {
    work.wait(number);
    if (work.chunk(number) * copied_warps + warp < steps) own.load(lane_rows + work.place(number));
    work.free(number);
  };
  // Only what frees room that is needed is taken before the vector is asked for.
  const bool early = count > work.room();
  if (early) take(0);
  reads.end();
  float4 columns[Work::most_chunks][2];
#pragma unroll
  for (unsigned i = 0; i < Work::most_chunks; ++i) {
    const uint32_t step = min(i * copied_warps + warp, steps - 1);
    const float4* const from = reinterpret_cast<const float4*>(terms.x + step * step_columns) + 2 * lane;
    columns[i][0] = __ldg(from);
    columns[i][1] = __ldg(from + 1);
  }
  if (!early) take(0);
  float sum[rows] = {};
#pragma unroll 1
  for (uint32_t number = 0;;) {
    if (work.chunk(number) == 0) {
      own.add_to(sum, columns[0]);
    } else if (copied_warps + warp < steps) {
      own.add_to(sum, columns[1]);
    }
    if (work.ends(number)) {
      const float of_row = warp_sums(sum);
      constexpr unsigned share = warp_size / rows;
      if (lane % share == 0) sums[warp * copied_rows + work.tile(number) * rows + lane / share] = of_row;
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) sum[r] = 0.0f;
    }
    if (++number == count) break;
    take(number);
  }
  __syncthreads();
  const StoreRow store{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0};
  for (uint32_t at = threadIdx.x; at < work.tiles() * rows; at += blockDim.x) {
    const uint32_t row = work.first_row(at / rows) + at % rows;
    if (row >= p.m) return;
    float dots[1] = {0.0f};
#pragma unroll
    for (unsigned w = 0; w < copied_warps; ++w) {
      if (w < block_warps()) dots[0] += sums[w * copied_rows + at];
    }
    store(row, 0, dots);
  }
}

}  // namespace zinc
