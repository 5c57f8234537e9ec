// How the rows of a matrix are dealt out to blocks and warps, whatever its format.
#pragma once

#include "zinc/quant/words.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// Each of `warps` warps works on `rows` rows at a time and on `vectors` vectors; a block's group is warps * rows rows.
template <unsigned warps_, unsigned rows_, unsigned vectors_ = 1>
struct RowShape {
  static constexpr unsigned warps = warps_;
  static constexpr unsigned threads = warps * warp_size;
  static constexpr unsigned rows = rows_;
  static constexpr unsigned group = warps * rows;
  static constexpr unsigned vectors = vectors_;
};

// Works through the row groups `group`, group + step, ... of `matrices` matrices of equal shape, m rows of row_bytes.
// dot(sum, row) adds a lane's share of the products of the rows that `row` points at; the rows of all matrices go
// through it together, matrix by matrix. finish(r, v, dots) gets, in one lane, the finished sums of row r and vector v,
// one per matrix. All threads of the block take part in every group, so dot may contain barriers. Rows past the end
// are replaced by the last one for loads and never reach finish.
template <class Shape, unsigned matrices, class Dot, class Finish>
ZINC_DEVICE void for_row_groups(const uint8_t* const (&matrix)[matrices], uint64_t row_bytes, uint32_t m,
                                uint32_t group, uint32_t step, Dot dot, Finish finish) {
  for (uint64_t start = uint64_t{group} * Shape::group; start < m; start += uint64_t{step} * Shape::group) {
    const uint64_t first = start + warp_id() * Shape::rows;
    const uint8_t* row[matrices * Shape::rows];
    float sum[matrices * Shape::rows][Shape::vectors] = {};
#pragma unroll
    for (unsigned i = 0; i < matrices * Shape::rows; ++i) {
      const uint64_t r = first + i % Shape::rows;
      row[i] = matrix[i / Shape::rows] + (r < m ? r : m - 1) * row_bytes;
    }
    dot(sum, row);
#pragma unroll
    for (unsigned r = 0; r < Shape::rows; ++r) {
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        float dots[matrices];
#pragma unroll
        for (unsigned i = 0; i < matrices; ++i) dots[i] = warp_sum(sum[i * Shape::rows + r][v]);
        if (lane_id() == 0 && first + r < m) finish(static_cast<uint32_t>(first + r), v, dots);
      }
    }
  }
}

// The bytes of a row of k columns.
template <class Format>
ZINC_DEVICE uint64_t row_bytes(uint32_t k) {
  return uint64_t{k / Format::block_columns} * Format::block_bytes;
}

// What lies `offset` bytes into a buffer.
template <class T>
ZINC_DEVICE const T* at_byte(const uint8_t* buffer, uint64_t offset) {
  return reinterpret_cast<const T*>(buffer + offset);
}
template <class T>
ZINC_DEVICE T* at_byte(uint8_t* buffer, uint64_t offset) {
  return reinterpret_cast<T*>(buffer + offset);
}

// Finishes rows by storing their sum, or by adding it to what is there. The old value is not read without need: it may
// be NaN.
struct StoreRow {
  float* y;
  uint64_t vector_stride;
  bool add;

  ZINC_DEVICE void operator()(uint32_t r, unsigned v, const float (&dots)[1]) const {
    float* const at = y + v * vector_stride + r;
    *at = add ? *at + dots[0] : dots[0];
  }
};

}  // namespace zinc
