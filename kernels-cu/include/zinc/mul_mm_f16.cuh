// Matrix-matrix products of quantized matrices with tokens in binary16 (pack_act_f16): weights are rounded to binary16,
// products and sums are f32.
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/mul_mm_f16_wgmma.cuh"

namespace zinc {

// By the warps' instruction: a warp decodes its rows in registers and multiplies them with all tokens of the tile,
// which are copied two steps ahead, as rows are a chunk ahead.
template <bool level, class Format_, class Shape_>
struct F16Tile {
  using Format = Format_;
  using Shape = Shape_;
  static constexpr unsigned stages = 3;
  static constexpr unsigned chunks = 2;
  using Rows = typename F16Rows<level, Format, Shape>::type;
  using Table = typename HalfWeights<Format>::template Table<Shape::rows>;

  alignas(16) uint4 tokens[stages][Shape::tokens][PackedTokens::pieces];
  Rows rows[chunks];
  Table table;

  ZINC_DEVICE void copy_tokens(const PackedTokens& x, uint32_t token, uint32_t step) {
    constexpr unsigned at_once = Shape::threads / PackedTokens::pieces;
    static_assert(Shape::tokens % at_once == 0);
    const unsigned piece = threadIdx.x % PackedTokens::pieces;
#pragma unroll
    for (unsigned i = 0; i < Shape::tokens / at_once; ++i) {
      const unsigned t = i * at_once + threadIdx.x / PackedTokens::pieces;
      async_copy<16>(shared_place(&tokens[step % stages][t][piece]),
                     x.at(step, min(token + t, x.count - 1)) + piece * sizeof(uint4));
    }
  }
};

template <class Tile>
ZINC_DEVICE void f16_tile(Tile& tile, const RowSource<typename Tile::Format, typename Tile::Shape>& from,
                          const PackedTokens& x, uint32_t token, const ScaledOutputs& to) {
  using Shape = typename Tile::Shape;
  using Weights = HalfWeights<typename Tile::Format>;
  constexpr unsigned tiles = Shape::row_tiles;
  const uint32_t steps = (from.k - 1) / step_columns + 1;
  const uint32_t chunks = (from.k - 1) / chunk_columns + 1;
  float sum[Shape::tokens / 8][tiles][4] = {};
  const LaneStarts<typename Tile::Rows, Shape> starts(from);
  __syncthreads();  // the last tile's readers are done
  tile.rows[0].template copy<4>(from, 0, threadIdx.x);
  tile.copy_tokens(x, token, 0);
  async_commit();
  if (steps > 1) tile.copy_tokens(x, token, 1);
  async_commit();
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t chunk = step / chunk_steps;
    auto& rows = tile.rows[chunk % Tile::chunks];
    async_wait<1>();
    __syncthreads();  // the step's tokens and rows are there, and the readers of the step before it are done
    if (step + 2 < steps) tile.copy_tokens(x, token, step + 2);
    if (step % chunk_steps == 0) {
      if (chunk + 1 < chunks) tile.rows[(chunk + 1) % Tile::chunks].template copy<4>(from, chunk + 1, threadIdx.x);
      if constexpr (Weights::has_table) {
        for (unsigned s = threadIdx.x; s < Shape::rows; s += Shape::threads) {
          Weights::template make<Tile::Rows::is_level>(tile.table, s, rows.of[s] + rows.shift(from, s, chunk));
        }
        __syncthreads();
      }
    }
    async_commit();
    F16Fragments a[tiles];
#pragma unroll
    for (unsigned r = 0; r < tiles; ++r) {
      decode_step<typename Tile::Format>(a[r], tile.table, rows, starts, from.k, step, r);
    }
#pragma unroll
    for (unsigned j = 0; j < Shape::tokens / 8; ++j) {
      const unsigned t = lane_id() / 4;
      const uint4* const pieces = tile.tokens[step % Tile::stages][8 * j + t];
#pragma unroll
      for (unsigned c = 0; c < 2 * step_blocks; ++c) {
        uint32_t b[2];
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          b[odd] = reinterpret_cast<const uint32_t*>(
              &pieces[WgmmaOperand<Shape::tokens>::place(t, 2 * c + odd)])[lane_id() % 4];
        }
#pragma unroll
        for (unsigned r = 0; r < tiles; ++r) mma_half(sum[j][r], a[r][c / 2][c % 2], b);
      }
    }
  }
  store_sums<Shape>(to, from.first, token, [&](unsigned r, unsigned j) -> const auto& { return sum[j][r]; });
}

// Tiles by warpgroups: with the tokens of the small ones where there are no more, or where the large ones are fewer
// than `few`.
template <class Large_, class Small_, unsigned few>
struct F16WgmmaTiles {
  using Large = Large_;
  using Small = Small_;

  static ZINC_DEVICE bool are_small(uint32_t m, uint32_t n) {
    return n <= Small::tokens || tile_count<Large::rows, Large::tokens>(m, n) < few;
  }
};

// How a kernel's block of `threads` threads computes tiles of `rows` rows and `tokens` tokens: by warpgroups where
// there are as many threads as they have.
template <unsigned rows, unsigned tokens, unsigned small_tokens, unsigned few, unsigned threads,
          bool warpgroups = (threads >= 3 * warpgroup_threads)>
struct F16TilesOf {
  using type = F16Shape<rows * warp_size / threads / 16, threads / warp_size, tokens, threads, 0>;
  static_assert(type::rows == rows);
};
template <unsigned rows, unsigned tokens, unsigned small_tokens, unsigned few, unsigned threads>
struct F16TilesOf<rows, tokens, small_tokens, few, threads, true> {
  using type = F16WgmmaTiles<F16WgmmaShape<tokens>, F16WgmmaShape<small_tokens>, few>;
  static_assert(type::Large::rows == rows && type::Large::block_threads == threads);
};
template <unsigned rows, unsigned tokens, unsigned small_tokens, unsigned few, unsigned threads>
using F16Tiles = typename F16TilesOf<rows, tokens, small_tokens, few, threads>::type;

template <class Format, unsigned bytes, class Large, class Small, unsigned few>
ZINC_DEVICE void all_f16_tiles(F16WgmmaTiles<Large, Small, few> tiles, const uint8_t* const (&matrix)[1],
                               const PackedTokens& x, uint32_t m, uint32_t k, const ScaledOutputs& to) {
  // Whether rows are copied in whole pieces, chunk by chunk.
  constexpr unsigned chunk_bytes = chunk_columns / Format::block_columns * Format::block_bytes;
  if (tiles.are_small(m, x.count)) {
    f16_wgmma_tiles<false, Format, Small, bytes>(matrix, x, m, k, to);
    return;
  }
  if constexpr (chunk_bytes % 16 == 0) {
    if (k % chunk_columns == 0 && is_aligned(matrix[0], 16)) {
      f16_wgmma_tiles<true, Format, Large, bytes>(matrix, x, m, k, to);
      return;
    }
  }
  f16_wgmma_tiles<false, Format, Large, bytes>(matrix, x, m, k, to);
}
template <class Format, unsigned bytes, class Shape>
ZINC_DEVICE void all_f16_tiles(Shape, const uint8_t* const (&matrix)[1], const PackedTokens& x, uint32_t m, uint32_t k,
                               const ScaledOutputs& to) {
  using Tile = F16Tile<false, Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  for_tiles<Shape::rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t token) {
    f16_tile(*tile, RowSource<Format, Shape>{matrix, m, k, row}, x, token, to);
  });
}

// d[t * stride_d + r] = scale[t] times row r times token t. a_offset counts bytes, d_offset floats. `bytes` is the size
// of the dynamic shared memory.
template <class Format, class Tiles, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_f16(const uint8_t* a, const uint8_t* h, const float* scale, float* d, const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  const PackedTokens x{h, p.n};
  const ScaledOutputs to{d + p.d_offset, p.stride_d, scale, p.m, p.n};
  all_f16_tiles<Format, bytes>(Tiles(), matrix, x, p.m, p.k, to);
}

}  // namespace zinc
