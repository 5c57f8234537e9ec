// Products of the rows of two f32 matrices on the tensor cores, with the accuracy of f32.
#pragma once
#include "zinc/mma.cuh"
#include "zinc/split_sums.cuh"
#include "zinc/turns.cuh"

namespace zinc {

// A tile of `rows_a` rows of A by `rows_b` rows of B, by eight warps. The columns are dealt, a step at a time, to the
// blocks of a cluster, and in a step to groups of warps, of which each computes the whole tile; a
// warp has 32 rows of A with up to 64 of B. It reads its part of A from memory as the instructions want it, the part of
// B that the warps of a group have in common passes through shared memory. The sums of all groups and blocks are added
// in a fixed order. What bounds it is the second cache, where tiles are large, and else the chain from the first load
// to the sums of a cluster.
template <unsigned rows_a, unsigned rows_b>
struct SplitTile {
  static constexpr unsigned warps = 8;
  static constexpr unsigned threads = warp_size * warps;
  static constexpr unsigned warp_rows_a = 32;
  static constexpr unsigned warp_rows_b = rows_b < 64 ? rows_b : 64;
  static constexpr unsigned warps_a = rows_a / warp_rows_a;
  static constexpr unsigned group_warps = warps_a * (rows_b / warp_rows_b);
  static constexpr unsigned group_threads = warp_size * group_warps;
  static constexpr unsigned groups = warps / group_warps;
  static_assert(groups * group_warps == warps && groups % 2 == 0, "whole groups in halves of the block");
  // The two warps of a quarter of the multiprocessor multiply in turn where that takes long: else both would convert at
  // the same time, and then wait for each other's products.
  static constexpr bool takes_turns = warp_rows_b == 64;
  // A group takes the columns of one instruction of a step, a lane four of them.
  static constexpr unsigned row_lanes = 4;
  static constexpr unsigned group_step = 4 * row_lanes;
  static constexpr unsigned step = groups * group_step;
  static constexpr unsigned passes_a = warp_rows_a / 8;
  static constexpr unsigned pass_rows_b = group_threads / row_lanes;
  static constexpr unsigned passes_b = rows_b / pass_rows_b;
  static_assert(passes_b * pass_rows_b == rows_b, "whole passes");

  // The columns of B of one step of a group, in the order of the lanes: two words and their low parts.
  using Stage = uint4[rows_b / 8][warp_size];
  // The sums of several groups are added in one place where there is no room for those of all.
  static constexpr unsigned places = sizeof(float) * (rows_a + 4) * rows_b * groups <= 40 * 1024 ? groups : 1;
  using Merge = SplitSums<rows_a, rows_b, threads, places>;
  using Sums = typename Merge::Sums;
  union Shared {
    Stage stage[groups][2];
    typename Merge::Shared result;
  };

  // Calls store(r, t, sum) for all products of row r of A and row t of B in the tile. False
  // if a row is not as the products need it; then nothing is stored. Every thread of the cluster must call this;
  // `columns` is a multiple of `step`.
  template <class Store>
  ZINC_DEVICE static bool multiply(const SplitPlace& place, uint32_t columns, Shared& shared, Store store) {
    const uint32_t blocks = cluster_blocks();
    const uint32_t rank = cluster_rank();
    const uint32_t steps = columns / step;
    const uint32_t first = uint64_t{steps} * rank / blocks;
    const uint32_t count = uint64_t{steps} * (rank + 1) / blocks - first;

    Warp warp(place, uint64_t{first} * step);
    Stage(&stage)[2] = shared.stage[Warp::group()];
    // Each step's operands are made while the products of the one before are formed, by this warp or by others.
    warp.template load<0>(0 < count);
    warp.template load<1>(1 < count);
    if (count > 0) {
      warp.template convert<0>(stage[0], 2 < count);
      if (takes_turns && block_half<threads>() != 0) pass_turn<threads>();
    }
    for (uint32_t n = 0; n < count; n += 2) {
      warp.multiply(stage[0], n + 1 < count);
      if (n + 1 >= count) break;
      warp.template convert<1>(stage[1], n + 3 < count);
      warp.multiply(stage[1], n + 2 < count);
      if (n + 2 >= count) break;
      warp.template convert<0>(stage[0], n + 4 < count);
    }
    __syncthreads();
    warp.store(shared.result.sums);
    // The groups of all blocks have equal shares of what is allowed.
    const bool refused = !warp.sums_below(split_most / static_cast<float>(groups * blocks));
    return Merge::merge(shared.result, refused, place, store);
  }

 private:
  // The work of a warp, with two steps on their way from memory. A lane has four columns: of the rows 8 i + lane / 4 of
  // the warp's part of A, and of every pass_rows_b-th row of B. Its products are those of row 16 i + lane / 4 + 8 h of
  // A with row 8 j + 2 (lane % 4) + e of B, in [i][j][2 h + e].
  struct Warp {
    static constexpr unsigned tiles_a = warp_rows_a / 16;
    static constexpr unsigned tiles_b = warp_rows_b / 8;
    static constexpr unsigned batch = 2;  // tiles of B whose products are between two into the same sums
    const float* row_a[passes_a];
    const float* row_b[passes_b];
    float4 quad_a[2][passes_a];
    float4 quad_b[2][passes_b];
    float sum_a[passes_a];
    float sum_b[passes_b];
    uint32_t high_a[tiles_a][4];
    uint32_t low_a[tiles_a][4];
    float high[tiles_a][tiles_b][4];
    float low[tiles_a][tiles_b][4];

    ZINC_DEVICE static unsigned group() { return warp_id() / group_warps; }
    ZINC_DEVICE static unsigned group_thread() { return threadIdx.x % group_threads; }
    ZINC_DEVICE static unsigned first_a() { return warp_id() % warps_a * warp_rows_a; }
    ZINC_DEVICE static unsigned first_b() { return warp_id() % group_warps / warps_a * warp_rows_b; }

    ZINC_DEVICE Warp(const SplitPlace& place, uint64_t column) : sum_a{}, sum_b{}, high{}, low{} {
      column += group() * group_step + 4 * (lane_id() % row_lanes);
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i)
        row_a[i] = place.a.row(place.first_a + first_a() + 8 * i + lane_id() / 4) + column;
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        row_b[i] = place.b.row(place.first_b + pass_rows_b * i + group_thread() / row_lanes) + column;
      }
    }

    template <unsigned slot>
    ZINC_DEVICE void load(bool exists) {
      if (exists) {
        load_some(quad_b[slot], row_b);
        load_some(quad_a[slot], row_a);
      }
    }

    // Makes the operands of the step in the slot, and loads the one after next into it, if there is one.
    template <unsigned slot>
    ZINC_DEVICE void convert(Stage& stage, bool more) {
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        const float4 x = quad_b[slot][i];
        sum_b[i] += absolutes(x);
        const SplitPair near(x.x, x.y);
        const SplitPair far(x.z, x.w);
        stage[pass_rows_b / 8 * i + group_thread() / warp_size][lane_id()] =
            make_uint4(near.high, far.high, near.low, far.low);
      }
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) {
        const float4 x = quad_a[slot][i];
        sum_a[i] += absolutes(x);
        const SplitPair near(x.x, x.y);
        const SplitPair far(x.z, x.w);
        high_a[i / 2][i % 2] = near.high;
        high_a[i / 2][i % 2 + 2] = far.high;
        low_a[i / 2][i % 2] = near.low;
        low_a[i / 2][i % 2 + 2] = far.low;
      }
      load<slot>(more);
    }

    // Adds the products of the operands that were made last. `next`: there are others to come.
    ZINC_DEVICE void multiply(const Stage& stage, bool next) {
      take_turn<threads, takes_turns>();
#pragma unroll
      for (unsigned j = 0; j < tiles_b; j += batch) {
        // The other half comes to its first product while the last ones of this one are formed.
        if (takes_turns && j + batch == tiles_b && (next || block_half<threads>() == 0)) pass_turn<threads>();
        uint32_t high_b[batch][2];
        uint32_t low_b[batch][2];
#pragma unroll
        for (unsigned u = 0; u < batch; ++u) {
          const uint4 b = stage[first_b() / 8 + j + u][lane_id()];
          high_b[u][0] = b.x;
          high_b[u][1] = b.y;
          low_b[u][0] = b.z;
          low_b[u][1] = b.w;
        }
        const auto multiply_all = [j](auto& sums, const uint32_t (&a)[tiles_a][4], const uint32_t (&b)[batch][2]) {
#pragma unroll
          for (unsigned u = 0; u < batch; ++u) {
#pragma unroll
            for (unsigned i = 0; i < tiles_a; ++i) mma_half(sums[i][j + u], a[i], b[u]);
          }
        };
        multiply_all(low, low_a, high_b);
        multiply_all(high, high_a, high_b);
        multiply_all(low, high_a, low_b);
      }
    }

    // Every thread of the block must call this.
    ZINC_DEVICE void store(Sums (&sums)[places]) const {
#pragma unroll
      for (unsigned round = 0; round < groups / places; ++round) {
        if (round > 0) __syncthreads();
        if (group() / places != round) continue;
        float* const to = &sums[group() % places][first_b() + lane_id() % 4 * 2][first_a() + lane_id() / 4];
#pragma unroll
        for (unsigned i = 0; i < tiles_a; ++i) {
#pragma unroll
          for (unsigned j = 0; j < tiles_b; ++j) {
#pragma unroll
            for (unsigned e = 0; e < 4; ++e) {
              float& at = to[(8 * j + e % 2) * Merge::pitch + 16 * i + e / 2 * 8];
              const float sum = fmaf(low[i][j][e], 1 / split_low_scale, high[i][j][e]);
              at = round == 0 ? sum : at + sum;
            }
          }
        }
      }
    }

    // Whether the group's share of every row is a number below this, in absolute values.
    ZINC_DEVICE bool sums_below(float limit) const {
      bool below = true;
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) below &= warp_sum<row_lanes>(sum_a[i]) < limit;
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) below &= warp_sum<row_lanes>(sum_b[i]) < limit;
      return below;
    }

   private:
    template <unsigned count>
    ZINC_DEVICE static void load_some(float4 (&quad)[count], const float* (&row)[count]) {
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        quad[i] = __ldg(reinterpret_cast<const float4*>(row[i]));
        row[i] += step;
      }
    }
  };
};

}  // namespace zinc
