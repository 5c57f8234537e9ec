// Matrix-matrix products of quantized matrices with many f32 vectors (tokens): tiles by the f16 tensor cores where they
// are exact enough, by f32 multiply-adds otherwise.
#pragma once

#include "zinc/gated.cuh"
#include "zinc/mul_mm_half.cuh"
#include "zinc/mul_mm_half_wgmma.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/quant/run.cuh"

namespace zinc {

// Where tokens come from: token t < count is the floats at first + t * stride; 4-byte alignment is enough.
struct Tokens {
  const float* first;
  uint64_t stride;
  uint32_t count;

  ZINC_DEVICE const float* columns(uint32_t t) const { return first + uint64_t{t} * stride; }
  // Whether the columns of all tokens are 16-byte aligned.
  ZINC_DEVICE bool aligned() const { return is_aligned(first, sizeof(float4)) && stride % 4 == 0; }
};

// A tile by f32 multiply-adds: finish(row, token, sums of each matrix) for all rows before m and tokens that x has, in
// any order. A thread has one row of each matrix for `at_once` tokens.
template <class Format, class Shape, class Source, class Finish>
ZINC_DEVICE void plain_tile(const uint8_t* const (&matrix)[Shape::matrices], uint32_t m, uint32_t row, const Source& x,
                            uint32_t token, uint32_t k, Finish finish, uint32_t thread = threadIdx.x) {
  constexpr unsigned at_once = 4;
  static_assert(Shape::tokens % at_once == 0);
  for (unsigned i = thread; i < Shape::matrix_rows * (Shape::tokens / at_once); i += Shape::threads) {
    const uint32_t r = row + i % Shape::matrix_rows;
    const uint32_t first = token + i / Shape::matrix_rows * at_once;
    if (r >= m || first >= x.count) continue;
    float sum[at_once][Shape::matrices] = {};
    for (uint32_t group = 0; group < k / run_columns; ++group) {
#pragma unroll
      for (unsigned i = 0; i < Shape::matrices; ++i) {
        const Run<Format> run = load_run<false, Format>(matrix[i] + r * row_bytes<Format>(k), group);
#pragma unroll
        for (unsigned t = 0; t < at_once; ++t) {
          const float* const columns = x.columns(min(first + t, x.count - 1));
          // Summed apart from the total: the error of a long sum then grows with the number of runs and not of columns.
          float part = 0.0f;
#pragma unroll
          for (unsigned c = 0; c < run_columns; ++c) {
            part = fmaf(run.weight(c / 4, c % 4), __ldg(columns + group * run_columns + c), part);
          }
          sum[t][i] += part;
        }
      }
    }
#pragma unroll
    for (unsigned t = 0; t < at_once; ++t) {
      if (first + t < x.count) finish(r, first + t, sum[t]);
    }
  }
}

// The tile at (row, token) by all threads of the block: finish as plain_tile has it. `wide` says that blocks and tokens
// are aligned for the widest loads.
template <bool wide, class Format, class Shape, class Source, class Finish>
ZINC_DEVICE void any_tile(HalfTile<Format, Shape>& tile, uint32_t (&limits)[2],
                          const uint8_t* const (&matrix)[Shape::matrices], uint32_t m, uint32_t row, const Source& x,
                          uint32_t token, uint32_t k, Finish finish) {
  if constexpr (has_half_mma) {
    HalfSums<Shape> sum = {};
    if (half_product<wide, Format>(sum, tile, limits, matrix, m, row, x, token, k)) {
      constexpr unsigned first_tiles = Shape::row_tiles / Shape::matrices;
#pragma unroll
      for (unsigned t = 0; t < Shape::token_tiles * 2; ++t) {
        const uint32_t at_token = token + Shape::warp_token() + t / 2 * 8 + lane_id() % 4 * 2 + t % 2;
        if (at_token >= x.count) continue;
#pragma unroll
        for (unsigned r = 0; r < first_tiles * 2; ++r) {
          const uint32_t at_row = row + Shape::matrix_row(Shape::warp_row() + r * 8 + lane_id() / 4);
          float sums[Shape::matrices];
#pragma unroll
          for (unsigned i = 0; i < Shape::matrices; ++i) {
            sums[i] = sum[t / 2][i * first_tiles + r / 2][r % 2 * 2 + t % 2];
          }
          if (at_row < m) finish(at_row, at_token, sums);
        }
      }
      return;
    }
  }
  plain_tile<Format, Shape>(matrix, m, row, x, token, k, finish);
}

template <class Format, unsigned matrices>
ZINC_DEVICE bool all_wide(const uint8_t* const (&matrix)[matrices]) {
  bool wide = true;
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], Format::wide_alignment);
  return wide;
}

// Tiles by warpgroups. The grid has a block for each of the large tiles, or, for as many of the last ones as it has
// blocks enough for, one for each of the small tiles that they consist of.
template <class Large_, class Small_>
struct WgmmaTiles {
  using Large = Large_;
  using Small = Small_;
  static constexpr unsigned matrices = Large::matrices;
  static constexpr unsigned row_parts = Large::matrix_rows / Small::matrix_rows;
  static constexpr unsigned parts = row_parts * (Large::tokens / Small::tokens);
  static_assert(parts > 1);

  // How many tiles are computed as a whole.
  static ZINC_DEVICE uint32_t large_count(uint32_t m, uint32_t n) {
    const uint32_t tiles = static_cast<uint32_t>(tile_count<Large::matrix_rows, Large::tokens>(m, n));
    return tiles - (gridDim.x - tiles) / (parts - 1);
  }
  static ZINC_DEVICE bool is_small(uint32_t m, uint32_t n) { return blockIdx.x >= large_count(m, n); }
  // The block's tile, or part `part` of a large one. It may be past the last row or token.
  static ZINC_DEVICE TilePlace place(uint32_t m, uint32_t n, uint32_t part) {
    const uint32_t large = large_count(m, n);
    uint32_t tile = blockIdx.x;
    if (tile >= large) {
      part = (tile - large) % parts;
      tile = large + (tile - large) / parts;
    }
    const uint32_t columns = (n - 1) / Large::tokens + 1;
    return {uint64_t{tile / columns} * Large::matrix_rows + part % row_parts * Small::matrix_rows,
            tile % columns * Large::tokens + part / row_parts * Small::tokens};
  }
};

// How a kernel's block of `threads` threads computes tiles of `rows` rows, of all matrices together, and `tokens`
// tokens: by warpgroups where there are as many threads as they have. Only then there are small tiles.
template <unsigned rows, unsigned tokens, unsigned small_rows, unsigned small_tokens, unsigned threads,
          unsigned matrices, bool warpgroups = (threads >= 384)>
struct FloatTilesOf {
  using type = HalfShape<rows, tokens, threads, matrices>;
};
template <unsigned rows, unsigned tokens, unsigned small_rows, unsigned small_tokens, unsigned threads,
          unsigned matrices>
struct FloatTilesOf<rows, tokens, small_rows, small_tokens, threads, matrices, true> {
  static constexpr unsigned bringers = threads / warpgroup_threads - 2;
  using One = WgmmaShape<1, 1, bringers, 1>;
  using type = WgmmaTiles<WgmmaShape<rows / One::rows, tokens / One::tokens, bringers, matrices>,
                          WgmmaShape<small_rows / One::rows, small_tokens / One::tokens, bringers, matrices>>;
};
template <unsigned rows, unsigned tokens, unsigned small_rows, unsigned small_tokens, unsigned threads,
          unsigned matrices = 1>
using FloatTiles = typename FloatTilesOf<rows, tokens, small_rows, small_tokens, threads, matrices>::type;

template <class Shape>
constexpr bool is_warpgroups = false;
template <class Large, class Small>
constexpr bool is_warpgroups<WgmmaTiles<Large, Small>> = true;

// What plain_tile needs to know of the tiles of warpgroups.
template <class Shape>
struct PlainShape {
  static constexpr unsigned matrices = Shape::matrices;
  static constexpr unsigned matrix_rows = Shape::matrix_rows;
  static constexpr unsigned tokens = Shape::tokens;
  static constexpr unsigned threads = Shape::block_threads;
};

// Whether rows of whole chunks are whole 16 bytes.
template <class Format>
constexpr bool level_rows = chunk_columns / Format::block_columns * Format::block_bytes % 16 == 0;

// What the arguments of a kernel say, computed when it is needed: tiles by warpgroups have no registers to keep it.
template <unsigned matrices>
struct Operands {
  const uint8_t* matrix[matrices];
  Tokens x;

  template <class Push>
  ZINC_DEVICE Operands(const uint8_t* const (&buffer)[matrices], const float* b, const Push& p) {
    uint32_t a_offset = p.a_offset;
    uint32_t b_offset = p.b_offset;
    forget(a_offset);
    forget(b_offset);
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) matrix[i] = buffer[i] + a_offset;
    x = {b + b_offset, p.stride_b, p.n};
  }
};

// A tile by warpgroups, with blocks of Shape::block_threads: its outputs, or false in all threads if they would not be
// as exact as the contracts ask. A barrier of the block comes before, if another tile does; `more` says whether another
// one may follow although this one is good.
template <bool wide, bool more, class Number, class Format, class Shape, unsigned bytes, class Push, class Combine>
ZINC_DEVICE bool mul_mm_wgmma(const uint8_t* const (&buffer)[Shape::matrices], const float* b, float* d, const Push& p,
                              const TilePlace& place, Combine combine) {
  const Operands<Shape::matrices> operands(buffer, b, p);
  const Tokens& x = operands.x;
  using Tile = HalfWgmmaTile<wide && level_rows<Format>, Format, Shape, Number, 2>;
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  Tile& tile = aligned_tile<Tile, bytes>(shared);
  make_barriers(tile);
  __syncthreads();
  if (place.row >= p.m || place.token >= p.n) return true;
  constexpr unsigned rows = Shape::lane_rows;
  struct alignas(rows * sizeof(float)) Outputs {
    float of[rows];
  };
  const auto finish = [&](uint32_t first, uint32_t t, const float (&sums)[rows][Shape::matrices]) {
    if (t >= x.count || first >= p.m) return;
    float* const to = d + p.d_offset + (uint64_t{t} * p.stride_d + first);
    Outputs outputs;
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) outputs.of[r] = combine(sums[r]);
    if (p.m - first >= rows && is_aligned(to, sizeof(Outputs))) {
      *reinterpret_cast<Outputs*>(to) = outputs;
      return;
    }
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      if (p.m - first > r) to[r] = outputs.of[r];
    }
  };
  const RowSource<Format, Shape> from{operands.matrix, p.m, p.k, static_cast<uint32_t>(place.row)};
  const bool good = half_wgmma_tile<wide>(tile, from, x, place.token, finish);
  if (good && !more) return true;
  __syncthreads();
  end_barriers(tile);
  return good;
}

// d[t * stride_d + r] = combine(sums of row r of each matrix times token t). a_offset counts bytes, the others floats.
// `bytes` is the size of the dynamic shared memory.
template <class Format, class Shape, unsigned bytes, class Push, class Combine>
ZINC_DEVICE void mul_mm_combined(const uint8_t* const (&buffer)[Shape::matrices], const float* b, float* d,
                                 const Push& p, Combine combine) {
  if constexpr (is_warpgroups<Shape>) {
    const bool small = Shape::is_small(p.m, p.n);
    using Large = typename Shape::Large;
    using Small = typename Shape::Small;
    // Whether rows are copied in whole pieces, chunk by chunk.
    const auto is_wide = [&] {
      const Operands<Shape::matrices> operands(buffer, b, p);
      bool wide = operands.x.aligned() && p.k % chunk_columns == 0;
#pragma unroll
      for (unsigned i = 0; i < Shape::matrices; ++i) {
        wide = wide && (!level_rows<Format> || is_aligned(operands.matrix[i], 16));
      }
      return wide;
    };
    using Number = HalfNumber<Format>;
    // Whether rows and tokens of any alignment have large tiles: of two matrices these would need too many registers.
    constexpr bool has_large = Shape::matrices == 1;
    const auto place = [&](uint32_t part) {
      uint32_t n = p.n;
      forget(n);
      return Shape::place(p.m, n, part);
    };
    if (is_wide()) {
      if (small) {
        if (mul_mm_wgmma<true, false, Number, Format, Small, bytes>(buffer, b, d, p, place(0), combine)) return;
      } else {
        if (mul_mm_wgmma<true, false, Number, Format, Large, bytes>(buffer, b, d, p, place(0), combine)) return;
      }
    } else if constexpr (has_large) {
      if (small) {
        if (mul_mm_wgmma<false, false, Number, Format, Small, bytes>(buffer, b, d, p, place(0), combine)) return;
      } else {
        if (mul_mm_wgmma<false, false, Number, Format, Large, bytes>(buffer, b, d, p, place(0), combine)) return;
      }
    }
    // Small tiles with numbers of any size, and where outputs are not finite, without tensor cores.
#pragma unroll 1
    for (uint32_t part = 0; part < (small ? 1 : Shape::parts); ++part) {
      forget(part);
      if (place(part).row >= p.m || place(part).token >= p.n) continue;
      if constexpr (!has_large) {
        __syncthreads();
        if (!is_wide()) {
          if (mul_mm_wgmma<false, true, Number, Format, Small, bytes>(buffer, b, d, p, place(part), combine)) continue;
        }
      }
      if constexpr (!is_bfloat<Number>) {
        __syncthreads();
        if (mul_mm_wgmma<false, true, Bfloat16, Format, Small, bytes>(buffer, b, d, p, place(part), combine)) continue;
      }
      const Operands<Shape::matrices> operands(buffer, b, p);
      const auto finish = [&](uint32_t r, uint32_t t, const float (&sums)[Shape::matrices]) {
        d[p.d_offset + uint64_t{t} * p.stride_d + r] = combine(sums);
      };
      plain_tile<Format, PlainShape<Small>>(operands.matrix, p.m, static_cast<uint32_t>(place(part).row), operands.x,
                                            place(part).token, p.k, finish, thread_anew());
    }
  } else {
    using Tile = HalfTile<Format, Shape>;
    static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
    ZINC_DYNAMIC_SHARED(Tile, tile);
    ZINC_SHARED(uint32_t[2], limits);
    const uint8_t* matrix[Shape::matrices];
#pragma unroll
    for (unsigned i = 0; i < Shape::matrices; ++i) matrix[i] = buffer[i] + p.a_offset;
    const Tokens x{b + p.b_offset, p.stride_b, p.n};
    const bool wide = all_wide<Format>(matrix) && x.aligned();
    float* const out = d + p.d_offset;
    const auto finish = [=](uint32_t row, uint32_t token, const float (&sums)[Shape::matrices]) {
      out[uint64_t{token} * p.stride_d + row] = combine(sums);
    };
    for_tiles<Shape::matrix_rows, Shape::tokens>(p.m, p.n, [&](uint32_t row, uint32_t token) {
      if (wide) {
        any_tile<true, Format, Shape>(*tile, limits, matrix, p.m, row, x, token, p.k, finish);
      } else {
        any_tile<false, Format, Shape>(*tile, limits, matrix, p.m, row, x, token, p.k, finish);
      }
    });
  }
}

template <class Format, class Shape, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm(const uint8_t* a, const float* b, float* d, const Push& p) {
  const uint8_t* const buffer[] = {a};
  mul_mm_combined<Format, Shape, bytes>(buffer, b, d, p, [](const float (&sums)[1]) { return sums[0]; });
}

// d[t * stride_d + r] = Activation(gate sum, up sum).
template <class Format, class Shape, class Activation, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_gate_up(const uint8_t* gate, const uint8_t* up, const float* b, float* d, const Push& p) {
  const uint8_t* const buffer[] = {gate, up};
  mul_mm_combined<Format, Shape, bytes>(buffer, b, d, p,
                                        [](const float (&sums)[2]) { return Activation::of(sums[0], sums[1]); });
}

}  // namespace zinc
