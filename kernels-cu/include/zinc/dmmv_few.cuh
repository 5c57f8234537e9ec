// Matrix-vector products of matrices so small that the chain of dependent steps takes longer than their bytes: in f32
// from registers, with nothing to prepare and one barrier.
//
// Grid: x over groups of `rows` rows of each matrix. A block has a warp for every 256 columns, at most few_warps. A
// thread has a piece of neighbouring columns of all its rows, and those that lie as far on as the block's threads
// reach.
//
// A piece is a struct with
//   Format, columns                    how many columns
//   Place                              (matrix, first column): where the piece lies in each row of a matrix
//   load(row, Place)                   of rows that lie few_alignment bytes apart or a multiple of that
//   dot(activations, Place)
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/dmmv_rows.cuh"

namespace zinc {

constexpr unsigned few_warps = 8;
constexpr unsigned few_alignment = 4;

// Whether m rows of k columns, at most `few` weights, are multiplied this way. Launch blocks say the same.
ZINC_DEVICE bool is_few(uint32_t m, uint32_t k, uint32_t few) {
  constexpr unsigned columns = 64;  // of which rows of all formats are a multiple of few_alignment bytes
  return k % columns == 0 && uint64_t{m} * k <= few;
}

// Asks for the rows of the block. To be called before wait_for_previous().
template <class Piece, unsigned rows>
ZINC_DEVICE void prefetch_few(const uint8_t* matrix, uint32_t m, uint32_t k) {
  constexpr uint64_t unit = 16;
  const uint64_t row_size = row_bytes<typename Piece::Format>(k);
  const uint32_t first = blockIdx.x * rows;
  if (threadIdx.x != 0 || first >= m) return;
  const uint64_t from = reinterpret_cast<uint64_t>(matrix + first * row_size) / unit * unit;
  const uint64_t to = reinterpret_cast<uint64_t>(matrix + min(first + rows, m) * row_size) / unit * unit;
  if (to > from) prefetch_l2(reinterpret_cast<const uint8_t*>(from), static_cast<uint32_t>(to - from));
}

// Products of `matrices` matrices of m rows of k columns with x, for the rows of the block; see for_row_groups for
// finish. `partial` is shared memory for a float for each sum of each warp.
template <class Piece, unsigned rows, unsigned matrices, class Finish>
ZINC_DEVICE void few_rows(float* partial, const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k,
                          const float* x, Finish finish) {
  constexpr unsigned sums = rows * matrices;
  static_assert(warp_size % sums == 0 && Piece::columns % 4 == 0);
  const uint64_t row_size = row_bytes<typename Piece::Format>(k);
  const uint32_t first = blockIdx.x * rows;
  float sum[sums] = {};
#pragma unroll 2
  for (uint32_t c = Piece::columns * threadIdx.x; c < k; c += Piece::columns * blockDim.x) {
    Piece piece[sums];
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      const typename Piece::Place place(matrix[i / rows], c);
      piece[i].load(matrix[i / rows] + min(first + i % rows, m - 1) * row_size, place);
    }
    float activation[Piece::columns];
#pragma unroll
    for (unsigned i = 0; i < Piece::columns; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(x + c + i));
      activation[i] = four.x;
      activation[i + 1] = four.y;
      activation[i + 2] = four.z;
      activation[i + 3] = four.w;
    }
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      const typename Piece::Place place(matrix[i / rows], c);
      sum[i] += piece[i].dot(activation, place);
    }
  }
  const float part = warp_sums(sum);
  constexpr unsigned group = warp_size / sums;
  if (lane_id() % group == 0) partial[warp_id() * sums + lane_id() / group] = part;
  __syncthreads();
  if (threadIdx.x < rows && first + threadIdx.x < m) {
    float dots[matrices];
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
      dots[i] = 0.0f;
#pragma unroll
      for (unsigned w = 0; w < few_warps; ++w) {
        if (w < block_warps()) dots[i] += partial[w * sums + i * rows + threadIdx.x];
      }
    }
    finish(first + threadIdx.x, 0, dots);
  }
}

// The same with what comes before; launched with 4 * few_warps * matrices * rows bytes of dynamic shared memory.
template <class Piece, unsigned rows, unsigned matrices, class Finish>
ZINC_DEVICE void matvec_few(const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k, const float* x,
                            Finish finish) {
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) prefetch_few<Piece, rows>(matrix[i], m, k);
  wait_for_previous();
  ZINC_DYNAMIC_SHARED(float, partial);
  few_rows<Piece, rows>(partial, matrix, m, k, x, finish);
}

}  // namespace zinc
