// What the two forms of matrix-matrix products with tokens in binary16 have in common.
#pragma once

#include "zinc/mul_mm_f16_weights.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/wgmma.cuh"

namespace zinc {

// Tokens as pack_act_f16 writes them: 64 columns of all tokens, and then the next 64. The 128 bytes of a token's 64
// columns are in the order of a lane's fragments, and exchanged as WgmmaOperand has it for rows of the token's number.
struct PackedTokens {
  static constexpr uint32_t bytes = 128;
  static constexpr unsigned pieces = bytes / sizeof(uint4);
  const uint8_t* columns;
  uint32_t count;

  ZINC_DEVICE const uint8_t* at(uint32_t step, uint32_t token) const {
    return columns + (uint64_t{step} * count + token) * bytes;
  }
};

// A block computes `rows` rows for `tokens` tokens, a warp that multiplies 16 * row_tiles rows for all of them. Rows
// are copied by `threads` threads; the warps that multiply come after `first_warp` others.
template <unsigned row_tiles_, unsigned warps_, unsigned tokens_, unsigned threads_, unsigned first_warp_>
struct F16Shape {
  static constexpr unsigned matrices = 1;
  static constexpr unsigned row_tiles = row_tiles_;
  static constexpr unsigned warps = warps_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned warp_rows = 16 * row_tiles;
  static constexpr unsigned rows = warps * warp_rows;
  static_assert(tokens % 8 == 0, "the exchange of pieces repeats every 8 tokens");

  // Rows group and group + 8 of the instruction, of all tiles of a warp, are neighbours in the matrix: they are shared
  // rows 16 r + 2 group and the one after it of tile r.
  static constexpr unsigned lane_rows = 2 * row_tiles;
  static ZINC_DEVICE unsigned matrix(unsigned) { return 0; }
  static ZINC_DEVICE unsigned matrix_row(unsigned s) {
    return s / warp_rows * warp_rows + s % 16 / 2 * lane_rows + s / 16 % row_tiles * 2 + s % 2;
  }
  static ZINC_DEVICE unsigned warp_row() { return (warp_id() - first_warp_) * warp_rows; }
  static ZINC_DEVICE unsigned lane_row(unsigned r) { return warp_row() + 16 * r + lane_id() / 4 * 2; }
  // Of the tile: the first of a lane's rows.
  static ZINC_DEVICE unsigned first_row() { return warp_row() + lane_id() / 4 * lane_rows; }
};

// Rows that are read together, every other one, lie a multiple of 32 bytes but not of 64 apart in the banks.
template <bool level, class Format, class Shape>
struct F16Rows {
  static constexpr unsigned pitch = RawRows<level, Format, Shape>::pitch;
  using type = RawRows<level, Format, Shape, pitch / 16 % 2 != 0 ? 0 : 16>;
};

// A lane's fragments of 64 columns of 16 rows.
using F16Fragments = uint32_t[step_blocks][2][4];

// Where the chunks of a lane's rows begin in shared memory: how far the rows are from a multiple of 16 bytes.
template <class Rows, class Shape>
struct LaneStarts {
  uint32_t row[Shape::row_tiles][2];

  explicit ZINC_DEVICE LaneStarts(const typename Rows::Source& from) {
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) row[r][h] = Rows::shift(from, Shape::lane_row(r) + h, 0);
    }
  }
};

// Of a step of the tile's columns, in a chunk of them.
template <class Format, class Shape, class Rows, class Table>
ZINC_DEVICE void decode_step(F16Fragments& a, const Table& table, const Rows& rows,
                             const LaneStarts<Rows, Shape>& starts, uint32_t k, uint32_t step, unsigned r) {
  uint32_t start[2];
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    start[h] = Rows::is_level ? 0 : (starts.row[r][h] + step / chunk_steps * Rows::bytes) % 16;
  }
#pragma unroll
  for (unsigned q = 0; q < step_blocks; ++q) {
    const bool present = Rows::is_level || (step * step_blocks + q) * token_block < k;
    HalfWeights<Format>::template fragment<Rows::is_level>(a[q], table, rows, start, Shape::lane_row(r),
                                                           step % chunk_steps * step_blocks + q, present);
  }
}

// Where the outputs of tokens lie: row r of token t at d + t * stride + r, and what its sum is multiplied by.
struct ScaledOutputs {
  float* d;
  uint64_t stride;
  const float* scale;
  uint32_t m;
  uint32_t n;
};

// Stores a lane's sums of the tile at (first, token). sum(r, j) is what the instruction has of row tile r and tokens 8
// j to 8 j + 7: [2 h + e].
template <class Shape, class Sum>
ZINC_DEVICE void store_sums(const ScaledOutputs& to, uint64_t first, uint32_t token, Sum sum) {
  constexpr unsigned count = Shape::lane_rows;
  static_assert(count == 2 || count == 4);
  const uint64_t row = first + Shape::first_row();
  const uint32_t mine = token + lane_id() % 4 * 2;
  float* const base = to.d + (uint64_t{mine} * to.stride + row);
  const bool wide = row + count <= to.m && to.stride % count == 0 && is_aligned(base, count * sizeof(float));
#pragma unroll
  for (unsigned j = 0; j < Shape::tokens / 8; ++j) {
#pragma unroll
    for (unsigned e = 0; e < 2; ++e) {
      if (mine + 8 * j + e >= to.n) continue;
      const float factor = __ldg(to.scale + mine + 8 * j + e);
      float* const at = base + (8 * j + e) * to.stride;
      const auto value = [&](unsigned i) { return sum(i / 2, j)[i % 2 * 2 + e] * factor; };
      if (wide) {
        if constexpr (count == 4) {
          *reinterpret_cast<float4*>(at) = make_float4(value(0), value(1), value(2), value(3));
        } else {
          *reinterpret_cast<float2*>(at) = make_float2(value(0), value(1));
        }
      } else {
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
          if (row + i < to.m) at[i] = value(i);
        }
      }
    }
  }
}

}  // namespace zinc
