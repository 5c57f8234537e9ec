// Products of the rows of two f32 matrices by wgmma, with the accuracy of f32 (split_sums.cuh says how numbers are
// split).
#pragma once
#include "zinc/async_copy.cuh"
#include "zinc/mul_mm_wgmma.cuh"
#include "zinc/split_sums.cuh"
#include "zinc/wgmma.cuh"

namespace zinc {

// A tile of 128 rows of A by 80 rows of B, by two warpgroups: one brings rows, and converts those of B on their way to
// shared memory, the other one converts those of A and multiplies. The columns are dealt to the blocks of a cluster,
// each at most `most_columns`: no place in shared memory is used twice. The sums of all blocks are added in a fixed
// order. What bounds it is how fast the second cache feeds a multiprocessor, 40 bytes per clock (who asks for more
// waits with the request, and could not multiply meanwhile), and then the other blocks' sums, 12 bytes per clock.
struct SplitWgmmaTile {
  static constexpr unsigned rows_a = 128;
  static constexpr unsigned rows_b = 80;
  static constexpr unsigned threads = 2 * warpgroup_threads;
  using Operand = WgmmaOperand<rows_b>;
  // Columns are counted in those of an operand.
  static constexpr unsigned unit = Operand::columns;
  static constexpr unsigned units = 4;
  static constexpr unsigned most_columns = units * unit;
  // Columns of an instruction, of which a lane has four.
  static constexpr unsigned step = 16;
  static constexpr unsigned row_lanes = 4;
  static constexpr unsigned steps = unit / step;
  static_assert(steps * warp_size == warpgroup_threads, "each warp that brings has a step");
  // Rows that a warp asks for at once.
  static constexpr unsigned pass_rows = warp_size / row_lanes;
  static constexpr unsigned passes_a = rows_a / pass_rows;
  static constexpr unsigned passes_b = rows_b / pass_rows;
  static constexpr unsigned halves = rows_a / 64;  // of A, an instruction for each

  using Merge = SplitSums<rows_a, rows_b, threads, 1>;
  struct Operands {
    Operand high[units];
    Operand low[units];
    float4 a[units][steps][passes_a][warp_size];
  };
  struct Shared {
    union {
      Operands operands;
      typename Merge::Shared result;
    };
    float absolutes_b[rows_b][steps];
    PhaseBarrier brought[units];
    PhaseBarrier multiplied;
  };

  // Calls store(r, t, sum) for all products of row r of A and row t of B in the tile. False if a row is not as the
  // products need it; then nothing is stored. Every thread of the cluster must call this; `columns` is a multiple of
  // `unit`, and no more than most_columns for each block of the cluster.
  template <class Store>
  ZINC_DEVICE static bool multiply(const SplitPlace& place, uint32_t columns, Shared& shared, Store store) {
    const uint32_t blocks = cluster_blocks();
    const uint32_t rank = cluster_rank();
    const uint32_t first = columns / unit * rank / blocks;
    const uint32_t count = columns / unit * (rank + 1) / blocks - first;
    if (threadIdx.x == 0) {
      // Every thread that brings arrives when its copies have, too.
#pragma unroll
      for (unsigned u = 0; u < units; ++u) phase_make(shared.brought[u], 2 * warpgroup_threads);
      phase_make(shared.multiplied, threads);
    }
    __syncthreads();
    bool refused = false;
    if (threadIdx.x < warpgroup_threads) {
      Products products;
      products.multiply(count, shared);
      phase_arrive(shared.multiplied);
      phase_wait(shared.multiplied, 0);
      products.store(shared.result.sums[0]);
      // The blocks have equal shares of what is allowed.
      const float limit = split_most / static_cast<float>(blocks);
      refused = !products.sums_below(limit);
      if (threadIdx.x < rows_b) {
        float sum = 0;
#pragma unroll
        for (unsigned s = 0; s < steps; ++s) sum += shared.absolutes_b[threadIdx.x][s];
        refused |= !(sum < limit);
      }
    } else {
      Bringer(place, uint64_t{first} * unit).bring(count, shared);
      phase_arrive(shared.multiplied);
    }
    return Merge::merge(shared.result, refused, place, store);
  }

 private:
  // One of the threads that bring rows, whose warp has a step of every unit.
  struct Bringer {
    const float* row_a[passes_a];
    const float* row_b[passes_b];
    float4 quads_b[passes_b];
    float absolutes_b[passes_b];

    ZINC_DEVICE Bringer(const SplitPlace& place, uint64_t column) : absolutes_b{} {
      column += own_step() * step + 4 * (lane_id() % row_lanes);
      find_rows(row_a, place.a, place.first_a, column);
      find_rows(row_b, place.b, place.first_b, column);
    }

    ZINC_DEVICE static unsigned own_step() { return warp_id() % steps; }
    ZINC_DEVICE static unsigned row(unsigned pass) { return pass_rows * pass + lane_id() / row_lanes; }

    // Rows of B are asked for first: they come while those of A are asked for.
    ZINC_DEVICE void bring(uint32_t count, Shared& shared) {
#pragma unroll
      for (unsigned u = 0; u < units; ++u) {
        if (u >= count) break;
        ask(u, shared);
        convert(u, shared);
      }
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        const float sum = warp_sum<row_lanes>(absolutes_b[i]);
        if (lane_id() % row_lanes == 0) shared.absolutes_b[row(i)][own_step()] = sum;
      }
    }

   private:
    // The lane's rows; those past the end repeat one before. Each is stepped on from another.
    template <unsigned passes>
    ZINC_DEVICE static void find_rows(const float* (&rows)[passes], const FloatRows& of, uint64_t first,
                                      uint64_t column) {
      const float* at = of.row(first + row(0)) + column;
#pragma unroll
      for (unsigned i = 0; i < passes; ++i) {
        rows[i] = at;
        if (first + row(i + 1) < of.count) at += pass_rows * of.pitch;
      }
    }

    ZINC_DEVICE void ask(unsigned u, Shared& shared) {
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) quads_b[i] = *reinterpret_cast<const float4*>(row_b[i] + u * unit);
      const SharedPlace to = shared_place(&shared.operands.a[u][own_step()][0][lane_id()]);
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) async_copy<16>(to + i * warp_size * 16, row_a[i] + u * unit);
      phase_arrive_after_copies(shared.brought[u]);
    }

    ZINC_DEVICE void convert(unsigned u, Shared& shared) {
      const unsigned piece = 2 * own_step();
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        const float4 x = quads_b[i];
        absolutes_b[i] += absolutes(x);
        const SplitPair near(x.x, x.y);
        const SplitPair far(x.z, x.w);
        word(shared.operands.high[u], row(i), piece) = near.high;
        word(shared.operands.high[u], row(i), piece + 1) = far.high;
        word(shared.operands.low[u], row(i), piece) = near.low;
        word(shared.operands.low[u], row(i), piece + 1) = far.low;
      }
      wgmma_written();
      phase_arrive(shared.brought[u]);
    }

    ZINC_DEVICE static uint32_t& word(Operand& operand, unsigned row, unsigned piece) {
      uint4& at = operand.pieces[row][Operand::place(row, piece)];
      return reinterpret_cast<uint32_t*>(&at)[lane_id() % row_lanes];
    }
  };

  // The products of a warp: of row 64 i + 16 warp + lane / 4 + 8 h of A with row 8 j + 2 (lane % 4) + e of B, in
  // [i][j][2 h + e].
  struct Products {
    using Sums = float[rows_b / 8][4];
    Sums high[halves];
    Sums low[halves];
    float absolutes_a[halves][2];

    ZINC_DEVICE Products() : high{}, low{}, absolutes_a{} {}

    ZINC_DEVICE void multiply(uint32_t count, Shared& shared) {
      // Of two operands, one is converted while the other is multiplied.
      uint32_t high_a[2][halves][4];
      uint32_t low_a[2][halves][4];
      float4 quads[halves][2];
      const auto load = [&](uint32_t u, unsigned s) {
#pragma unroll
        for (unsigned i = 0; i < halves; ++i) {
#pragma unroll
          for (unsigned h = 0; h < 2; ++h) {
            quads[i][h] = shared.operands.a[u][s][8 * i + 2 * warp_id() + h][lane_id()];
          }
        }
      };
      if (count == 0) return;
      phase_wait(shared.brought[0], 0);
      load(0, 0);
#pragma unroll 1
      for (uint32_t u = 0; u < count; ++u) {
#pragma unroll
        for (unsigned s = 0; s < steps; ++s) {
#pragma unroll
          for (unsigned i = 0; i < halves; ++i) {
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
              const float4 x = quads[i][h];
              absolutes_a[i][h] += absolutes(x);
              const SplitPair near(x.x, x.y);
              const SplitPair far(x.z, x.w);
              high_a[s % 2][i][h] = near.high;
              high_a[s % 2][i][h + 2] = far.high;
              low_a[s % 2][i][h] = near.low;
              low_a[s % 2][i][h + 2] = far.low;
            }
          }
          const WgmmaColumns high_b = wgmma_columns(shared.operands.high[u], 0, s);
          const WgmmaColumns low_b = wgmma_columns(shared.operands.low[u], 0, s);
          wgmma_begin();
#pragma unroll
          for (unsigned i = 0; i < halves; ++i) wgmma_half_80(low[i], low_a[s % 2][i], high_b);
#pragma unroll
          for (unsigned i = 0; i < halves; ++i) wgmma_half_80(high[i], high_a[s % 2][i], high_b);
#pragma unroll
          for (unsigned i = 0; i < halves; ++i) wgmma_half_80(low[i], high_a[s % 2][i], low_b);
          wgmma_commit();
          if (s + 1 < steps) {
            load(u, s + 1);
          } else if (u + 1 < count) {
            phase_wait(shared.brought[u + 1], 0);
            load(u + 1, 0);
          }
          // The products before these are there, and their operands free.
          wgmma_wait<1>();
        }
      }
#pragma unroll
      for (unsigned i = 0; i < halves; ++i) {
        wgmma_wait_for<0>(low[i]);
        wgmma_wait_for<0>(high[i]);
      }
    }

    ZINC_DEVICE void store(typename Merge::Sums& sums) const {
      float* const to = &sums[lane_id() % 4 * 2][16 * warp_id() + lane_id() / 4];
#pragma unroll
      for (unsigned i = 0; i < halves; ++i) {
#pragma unroll
        for (unsigned j = 0; j < rows_b / 8; ++j) {
#pragma unroll
          for (unsigned e = 0; e < 4; ++e) {
            to[(8 * j + e % 2) * Merge::pitch + 64 * i + e / 2 * 8] =
                fmaf(low[i][j][e], 1 / split_low_scale, high[i][j][e]);
          }
        }
      }
    }

    // Whether the block's share of every row of A is a number below this, in absolute values.
    ZINC_DEVICE bool sums_below(float limit) const {
      bool below = true;
#pragma unroll
      for (unsigned i = 0; i < halves; ++i) {
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) below &= warp_sum<row_lanes>(absolutes_a[i][h]) < limit;
      }
      return below;
    }
  };
};

}  // namespace zinc
