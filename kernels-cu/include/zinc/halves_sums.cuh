// The end of products that tensor cores sum in binary16 (split_vector.cuh): sums over the warps of a block, and over
// lanes in f32 for vectors that binary16 cannot represent.
#pragma once

#include "zinc/dmmv_rows.cuh"
#include "zinc/quant/run.cuh"

namespace zinc {

constexpr unsigned halves_rows = 16;  // of a tile

// Sums of the rows that a block has: tiles of 16 rows, a grid apart, of each matrix. Each warp has sums over its
// columns in memory of its own, `stride` floats from the one before: number i * 16 + r of a tile's is row r of matrix
// i.
template <unsigned matrices>
struct HalvesSums {
  static constexpr unsigned all_rows = matrices * halves_rows;

  float* memory;
  uint32_t stride;
  uint32_t block = blockIdx.x;
  uint32_t blocks = gridDim.x;

  ZINC_DEVICE uint32_t first_row(uint32_t tile) const { return (block + tile * blocks) * halves_rows; }

  // A quad's lanes have sums of the rows lane / 4 and 8 more of each matrix.
  static ZINC_DEVICE float of_quad(const float (&sum)[2 * matrices]) { return warp_sums<4>(sum); }
  ZINC_DEVICE void put(uint32_t tile, float of_quad) const {
    constexpr unsigned share = 4 / (2 * matrices);
    const unsigned lane = lane_id();
    if (lane % share == 0) memory[warp_id() * stride + tile * all_rows + lane % 4 / share * 8 + lane / 4] = of_quad;
  }

  // Computes them anew in f32, for vectors that binary16 cannot represent, as sums of one warp.
  template <class Format, class Terms>
  ZINC_DEVICE void put_floats(uint32_t tile, const Terms& terms, uint32_t m, uint32_t row_size) const {
    const uint32_t first = first_row(tile);
#pragma unroll 1
    for (uint32_t r = warp_id(); r < min(halves_rows, m - first); r += block_warps()) {
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) {
        float sum = 0.0f;
#pragma unroll 1
        for (uint32_t c = run_columns * lane_id(); c < terms.columns(); c += run_columns * warp_size) {
          const auto place = terms.place(c);
          const auto term = terms.term(place);
          const uint8_t* const row = term.matrix[i] + uint64_t{first + r} * row_size;
          const auto run = load_run<false, Format>(row, place.c / run_columns);
          float dot = 0.0f;
#pragma unroll
          for (unsigned j = 0; j < run_columns; ++j) {
            dot = fmaf(run.weight(j / 4, j % 4), __ldg(term.x + place.c + j), dot);
          }
          sum += term.weighted(dot);
        }
        sum = warp_sum(sum);
        if (lane_id() == 0) memory[tile * all_rows + i * halves_rows + r] = sum;
      }
    }
  }

  // Adds up what the warps have, and finishes the rows. All threads of the block call it; the warps are done with their
  // memory.
  template <class Format, unsigned most_warps, class Terms, class Finish>
  ZINC_DEVICE void finish(uint32_t tiles, bool unfit, const Terms& terms, uint32_t m, uint32_t row_size,
                          Finish finish) const {
    unsigned parts = block_warps();
    if (__syncthreads_or(unfit) != 0) {
#pragma unroll 1
      for (uint32_t tile = 0; tile < tiles; ++tile) put_floats<Format>(tile, terms, m, row_size);
      parts = 1;
      __syncthreads();
    }
    for (uint32_t at = threadIdx.x; at < tiles * halves_rows; at += blockDim.x) {
      const uint32_t tile = at / halves_rows;
      const uint32_t row = first_row(tile) + at % halves_rows;
      if (row >= m) return;
      const float* const own = memory + tile * all_rows + at % halves_rows;
      float dots[matrices];
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) {
        dots[i] = 0.0f;
#pragma unroll
        for (unsigned w = 0; w < most_warps; ++w) {
          if (w < parts) dots[i] += own[w * stride + i * halves_rows];
        }
      }
      finish(row, 0, dots);
    }
  }
};

}  // namespace zinc
