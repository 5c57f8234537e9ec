// Matrix-matrix products with tokens in binary16 by wgmma: one warp brings tokens, three bring rows and make the tables
// of their factors, and two warpgroups decode rows in their registers and multiply. Blocks walk over tiles; who brings
// is ahead of who multiplies, over the ends of tiles too.
#pragma once

#include "zinc/mul_mm_f16_tiles.cuh"
#include "zinc/mul_mm_wgmma.cuh"

namespace zinc {

// Each of the eight warps that multiply has 16 rows.
template <unsigned tokens_>
struct F16WgmmaShape : F16Shape<1, 8, tokens_, 3 * warp_size, 4> {
  static constexpr unsigned bringing_threads = warpgroup_threads;
  static constexpr unsigned multiplying_threads = 2 * warpgroup_threads;
  static constexpr unsigned block_threads = bringing_threads + multiplying_threads;
};

template <bool level, class Format_, class Shape_>
struct F16WgmmaTile {
  using Format = Format_;
  using Shape = Shape_;
  static constexpr unsigned stages = 4;
  // With few tokens a chunk is soon multiplied: more of them are on their way.
  static constexpr unsigned chunks = Shape::tokens <= 64 ? 4 : 2;
  using Rows = typename F16Rows<level, Format, Shape>::type;
  using Table = typename HalfWeights<Format>::template Table<Shape::rows>;

  WgmmaOperand<Shape::tokens> tokens[stages];
  Rows rows[chunks];
  Table table[chunks];
  Ring<stages> stage_ring;
  Ring<chunks> chunk_ring;  // full when the table is made
  PhaseBarrier rows_come[chunks];

  ZINC_DEVICE void make_barriers() {
    stage_ring.make(1, Shape::multiplying_threads);
    chunk_ring.make(Shape::threads, Shape::multiplying_threads);
    // Every thread arrives when its copies have, too.
#pragma unroll
    for (unsigned i = 0; i < chunks; ++i) phase_make(rows_come[i], 2 * Shape::threads);
  }
  ZINC_DEVICE void wait_rows(uint32_t chunk) { phase_wait(rows_come[chunk % chunks], chunk / chunks % 2); }
};

// By one thread.
template <class Tile>
ZINC_DEVICE void bring_tokens(Tile& tile, const PackedTokens& x, uint32_t token, uint32_t steps, uint32_t& stage) {
  const uint32_t bytes = min(Tile::Shape::tokens, x.count - token) * PackedTokens::bytes;
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    tile.stage_ring.wait_empty(stage);
    phase_arrive_with_copy(tile.stage_ring.full[stage % Tile::stages], &tile.tokens[stage % Tile::stages],
                           x.at(step, token), bytes);
    ++stage;
  }
}

// By Shape::threads threads, of which this is number `thread`.
template <class Tile>
ZINC_DEVICE void bring_rows(Tile& tile, const RowSource<typename Tile::Format, typename Tile::Shape>& from,
                            uint32_t thread, uint32_t& chunk) {
  using Shape = typename Tile::Shape;
  using Weights = HalfWeights<typename Tile::Format>;
  const uint32_t chunks = (from.k - 1) / chunk_columns + 1;
  // Rows are asked for this many chunks before their table is made: not so many that who multiplies waits for it.
  constexpr uint32_t ahead = Tile::chunks - 2;
  // Copies of inner rows do not look at the matrix's end: the rows after the tile are more than they reach beyond it.
  const uint64_t after = from.m - min(uint64_t{from.m}, uint64_t{from.first} + Shape::rows);
  const bool is_inner = after * row_bytes<typename Tile::Format>(from.k) >= Tile::Rows::pieces * 16;
  const auto ask = [&](uint32_t number) {
    tile.chunk_ring.wait_empty(chunk + number);
    PhaseBarrier& come = tile.rows_come[(chunk + number) % Tile::chunks];
    auto& rows = tile.rows[(chunk + number) % Tile::chunks];
    if (is_inner) {
      rows.copy_inner(from, number, thread);
    } else {
      rows.template copy<1>(from, number, thread);
    }
    phase_arrive_after_copies(come);
    phase_arrive(come);
  };
  for (uint32_t number = 0; number < min(ahead, chunks); ++number) ask(number);
#pragma unroll 1
  for (uint32_t number = 0; number < chunks; ++number) {
    if (number + ahead < chunks) ask(number + ahead);
    if constexpr (Weights::has_table) {
      tile.wait_rows(chunk + number);
      const auto& rows = tile.rows[(chunk + number) % Tile::chunks];
#pragma unroll 1
      for (unsigned s = thread; s < Shape::rows; s += Shape::threads) {
        Weights::template make<Tile::Rows::is_level>(tile.table[(chunk + number) % Tile::chunks], s,
                                                     rows.of[s] + rows.shift(from, s, number));
      }
    }
    tile.chunk_ring.filled(chunk + number);
  }
  chunk += chunks;
}

template <class Tile>
ZINC_DEVICE void multiply_f16(Tile& tile, const RowSource<typename Tile::Format, typename Tile::Shape>& from,
                              uint32_t token, uint32_t& stage, uint32_t& chunk, const ScaledOutputs& to) {
  using Shape = typename Tile::Shape;
  const uint32_t steps = (from.k - 1) / step_columns + 1;
  float sum[Shape::tokens / 8][4] = {};
  F16Fragments a[2];
  const LaneStarts<typename Tile::Rows, Shape> starts(from);
  const auto decode = [&](unsigned i, uint32_t step) {
    const uint32_t at = (chunk + step / chunk_steps) % Tile::chunks;
    decode_step<typename Tile::Format>(a[i], tile.table[at], tile.rows[at], starts, from.k, step, 0);
  };
  const auto wait_chunk = [&](uint32_t number) {
    tile.wait_rows(number);
    tile.chunk_ring.wait_full(number);
  };
  wait_chunk(chunk);
  decode(0, 0);
  // Of two operands, one is decoded while the other is multiplied.
#pragma unroll 1
  for (uint32_t first = 0; first < steps; first += 2) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint32_t step = first + i;
      if (step >= steps) break;
      tile.stage_ring.wait_full(stage + step);
      wgmma_begin();
#pragma unroll
      for (unsigned c = 0; c < 2 * step_blocks; ++c) {
        wgmma_half<Shape::tokens>(sum, a[i][c / 2][c % 2],
                                  wgmma_columns(tile.tokens[(stage + step) % Tile::stages], 0, c), true);
      }
      wgmma_commit();
      // The products before these are there, and their operands free.
      wgmma_wait<1>();
      if (step > 0) tile.stage_ring.emptied(stage + step - 1);
      if (step + 1 < steps) {
        if ((step + 1) % chunk_steps == 0) {
          tile.chunk_ring.emptied(chunk + step / chunk_steps);
          wait_chunk(chunk + (step + 1) / chunk_steps);
        }
        decode(1 - i, step + 1);
      }
    }
  }
  wgmma_wait_for<0>(sum);
  tile.stage_ring.emptied(stage + steps - 1);
  tile.chunk_ring.emptied(chunk + (steps - 1) / chunk_steps);
  stage += steps;
  chunk += (steps - 1) / chunk_steps + 1;
  store_sums<Shape>(to, from.first, token, [&](unsigned, unsigned j) -> const auto& { return sum[j]; });
}

// The block's tiles of m rows and all tokens. All threads of the block call it.
template <bool level, class Format, class Shape, unsigned bytes>
ZINC_DEVICE void f16_wgmma_tiles(const uint8_t* const (&matrix)[1], const PackedTokens& x, uint32_t m, uint32_t k,
                                 const ScaledOutputs& to) {
  using Tile = F16WgmmaTile<level, Format, Shape>;
  constexpr unsigned multiplying_registers = 216;
  constexpr unsigned bringing_registers = 72;
  static_assert(2 * multiplying_registers + bringing_registers <= 3 * (65536 / Shape::block_threads / 8 * 8));
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  Tile& tile = aligned_tile<Tile, bytes>(shared);
  if (threadIdx.x == 0) tile.make_barriers();
  __syncthreads();
  const uint32_t steps = (k - 1) / step_columns + 1;
  uint32_t stage = 0;
  uint32_t chunk = 0;
  if (threadIdx.x < Shape::threads) {
    give_registers<bringing_registers>();
    for_tiles<Shape::rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t) {
      bring_rows(tile, RowSource<Format, Shape>{matrix, m, k, row}, threadIdx.x, chunk);
    });
  } else if (threadIdx.x < Shape::bringing_threads) {
    give_registers<bringing_registers>();
    if (threadIdx.x != Shape::threads) return;
    for_tiles<Shape::rows, Shape::tokens>(
        m, x.count, [&](uint32_t, uint32_t token) { bring_tokens(tile, x, token, steps, stage); });
  } else {
    take_registers<multiplying_registers>();
    for_tiles<Shape::rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t token) {
      multiply_f16(tile, RowSource<Format, Shape>{matrix, m, k, row}, token, stage, chunk, to);
    });
  }
}

}  // namespace zinc
