// Products of the rows of two f32 matrices on the tensor cores, with the accuracy of f32.
#pragma once
#include "zinc/cluster.cuh"
#include "zinc/mma.cuh"

namespace zinc {

// Rows of a matrix in memory, `pitch` elements apart.
struct FloatRows {
  const float* __restrict__ data;
  uint64_t pitch;
  uint32_t count;

  // Rows past the end repeat the last one.
  ZINC_DEVICE const float* row(uint64_t i) const { return data + min(i, uint64_t{count} - 1) * pitch; }
};

// A tile of `rows_a` rows of A by `rows_b` rows of B. The columns are dealt, a step at a time, to the blocks of a
// cluster, and in a step to groups of warps, of which each computes the whole tile; a warp has 32 x 32 products of it.
// The sums of all groups and blocks are added in a fixed order.
//
// A number x becomes the binary16 numbers high = x and low = 2^11 (x - high), rounded, which together are off by at
// most 2^-23 |x| + 2^-36. The products high * high and high * low are summed in f32; low * low is left out. So a sum
// over w x is off by 2^-21 times the sum of |w x|, the rounding of f32 sums, and 2^-36 times the sum of |w| + |x|. The
// last part is below 5e-7 and nothing overflows if the sums of |w| and of |x| are below `most`, which is checked.
template <unsigned rows_a, unsigned rows_b, unsigned groups>
struct SplitTile {
  static constexpr float most = 16384.0f;
  static constexpr float low_scale = 2048.0f;
  static constexpr unsigned warp_side = 32;
  static constexpr unsigned warps_a = rows_a / warp_side;
  static constexpr unsigned group_warps = warps_a * (rows_b / warp_side);
  static constexpr unsigned warps = group_warps * groups;
  static constexpr unsigned threads = warp_size * warps;
  // A group takes the columns of one instruction of a step.
  static constexpr unsigned group_quads = 4;
  static constexpr unsigned row_lanes = groups * group_quads;  // lanes that load a row of a step
  static constexpr unsigned step = 4 * row_lanes;
  static constexpr unsigned passes_a = rows_a / 16;
  static constexpr unsigned passes_b = rows_b / 16;
  static_assert(row_lanes == 16 && warps == 8, "a pass is two rows a warp, of eight warps");

  // Operands of instructions in the order of the lanes. Those of odd groups are in exchanged halves of eight lanes, so
  // that the stores go to different banks.
  struct Stage {
    uint4 high_a[rows_a / 16][groups][warp_size];  // the four words of A
    uint4 low_a[rows_a / 16][groups][warp_size];
    uint4 b[rows_b / 8][groups][warp_size];  // two words of B, then their low parts
  };
  // Row t of B with row r of A. The pitch puts the lanes' stores into different banks.
  static constexpr unsigned sums_pitch = rows_a + 4;
  using Sums = float[rows_b][sums_pitch];
  struct Result {
    Sums sums[groups];
    uint32_t refused[warps];
  };
  union Shared {
    Stage stage[2];
    Result result;
  };

  // Calls store(r, t, sum) for all products of row r of A and row t of B in the tile that starts with these rows. False
  // if a row is not as the products need it; then nothing is stored. Every thread of the cluster must call this;
  // `columns` is a multiple of `step`.
  template <class Store>
  ZINC_DEVICE static bool multiply(const FloatRows& a, const FloatRows& b, uint64_t first_a, uint64_t first_b,
                                   uint32_t columns, Shared& shared, Store store) {
    const uint32_t blocks = cluster_blocks();
    const uint32_t rank = cluster_rank();
    const uint32_t steps = columns / step;
    const uint32_t first = uint64_t{steps} * rank / blocks;
    const uint32_t count = uint64_t{steps} * (rank + 1) / blocks - first;

    Loader loader(a, b, first_a, first_b, uint64_t{first} * step);
    Warp warp = {};
    loader.template load<0>(0 < count);
    loader.template load<1>(1 < count);
    for (uint32_t n = 0; n < count; n += 2) {
      loader.template store<0>(shared.stage[0]);
      loader.template load<0>(n + 2 < count);
      __syncthreads();
      warp.add_step(shared.stage[0]);
      if (n + 1 < count) {
        loader.template store<1>(shared.stage[1]);
        loader.template load<1>(n + 3 < count);
        __syncthreads();
        warp.add_step(shared.stage[1]);
      }
    }
    __syncthreads();
    warp.store(shared.result.sums);
    // A row's lanes in all blocks have equal shares of `most`.
    const bool refused = !loader.sums_below(most / static_cast<float>(row_lanes * blocks));
    const uint32_t refusing = __ballot_sync(full_warp, refused);
    if (lane_id() == 0) shared.result.refused[warp_id()] = refusing;
    cluster_barrier();
    bool any_refused = false;
    for (unsigned i = lane_id(); i < blocks * warps; i += warp_size) {
      any_refused |= *cluster_peer(&shared.result.refused[i % warps], i / warps) != 0;
    }
    any_refused = __any_sync(full_warp, any_refused);
    if (!any_refused) {
      for (unsigned i = rank * threads + threadIdx.x; i < rows_a * rows_b; i += blocks * threads) {
        const unsigned r = i % rows_a;
        const unsigned t = i / rows_a;
        float sum = 0.0f;
#pragma unroll 2
        for (uint32_t block = 0; block < blocks; ++block) {
#pragma unroll
          for (unsigned g = 0; g < groups; ++g) sum += *cluster_peer(&shared.result.sums[g][t][r], block);
        }
        if (first_a + r < a.count && first_b + t < b.count) store(first_a + r, first_b + t, sum);
      }
    }
    cluster_leave();
    return !any_refused;
  }

 private:
  // A number in two parts.
  struct Pair {
    uint32_t high;
    uint32_t low;

    ZINC_DEVICE Pair(float x, float y) : high(floats_to_halves(x, y)) {
      const float rest_x = x - half_to_float(static_cast<uint16_t>(high));
      const float rest_y = y - half_to_float(static_cast<uint16_t>(high >> 16));
      low = floats_to_halves(rest_x * low_scale, rest_y * low_scale);
    }
  };

  // Brings steps from memory to a stage, with two steps on their way. In a pass the lanes of a warp have one quad of
  // two rows each: of A two that the same lane multiplies.
  struct Loader {
    const float* row_a[passes_a];
    const float* row_b[passes_b];
    float4 quad_a[2][passes_a];
    float4 quad_b[2][passes_b];
    float sum_a[passes_a];
    float sum_b[passes_b];
    uint64_t column;

    ZINC_DEVICE static unsigned quad() { return lane_id() % row_lanes; }
    ZINC_DEVICE static unsigned half() { return lane_id() / row_lanes; }
    ZINC_DEVICE static unsigned group() { return quad() / group_quads; }

    ZINC_DEVICE Loader(const FloatRows& a, const FloatRows& b, uint64_t first_a, uint64_t first_b,
                       uint64_t first_column)
        : column(first_column + 4 * quad()) {
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) {
        row_a[i] = a.row(first_a + 16 * i + 8 * half() + warp_id()) + column;
        sum_a[i] = 0.0f;
      }
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        row_b[i] = b.row(first_b + 16 * i + 8 * half() + warp_id()) + column;
        sum_b[i] = 0.0f;
      }
    }

    template <unsigned slot>
    ZINC_DEVICE void load(bool exists) {
      if (!exists) return;
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) {
        quad_a[slot][i] = *reinterpret_cast<const float4*>(row_a[i]);
        row_a[i] += step;
      }
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        quad_b[slot][i] = *reinterpret_cast<const float4*>(row_b[i]);
        row_b[i] += step;
      }
    }

    template <unsigned slot>
    ZINC_DEVICE void store(Stage& stage) {
      const unsigned lane = (warp_id() * 4 + quad() % group_quads) ^ (group() % 2 * 4);
      // Of the two words of a lane of A, every second pair of groups stores the last one first: other banks again.
      const bool last_first = group() / 2 != 0;
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) {
        const float4 x = quad_a[slot][i];
        sum_a[i] += (fabsf(x.x) + fabsf(x.y)) + (fabsf(x.z) + fabsf(x.w));
        const Pair near(x.x, x.y);
        const Pair far(x.z, x.w);
        uint32_t* const high = reinterpret_cast<uint32_t*>(&stage.high_a[i][group()][lane]) + half();
        uint32_t* const low = reinterpret_cast<uint32_t*>(&stage.low_a[i][group()][lane]) + half();
        high[last_first ? 2 : 0] = last_first ? far.high : near.high;
        high[last_first ? 0 : 2] = last_first ? near.high : far.high;
        low[last_first ? 2 : 0] = last_first ? far.low : near.low;
        low[last_first ? 0 : 2] = last_first ? near.low : far.low;
      }
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) {
        const float4 x = quad_b[slot][i];
        sum_b[i] += (fabsf(x.x) + fabsf(x.y)) + (fabsf(x.z) + fabsf(x.w));
        const Pair near(x.x, x.y);
        const Pair far(x.z, x.w);
        stage.b[2 * i + half()][group()][lane] = make_uint4(near.high, far.high, near.low, far.low);
      }
    }

    // Whether the lane's share of every row is a number below this, in absolute values.
    ZINC_DEVICE bool sums_below(float limit) const {
      bool below = true;
#pragma unroll
      for (unsigned i = 0; i < passes_a; ++i) below &= sum_a[i] < limit;
#pragma unroll
      for (unsigned i = 0; i < passes_b; ++i) below &= sum_b[i] < limit;
      return below;
    }
  };

  // The products of a warp: row 16 i + lane / 4 + 8 h of A with row 8 j + 2 (lane % 4) + e of B in [i][j][2 h + e].
  struct Warp {
    static constexpr unsigned tiles_a = warp_side / 16;
    static constexpr unsigned tiles_b = warp_side / 8;
    float high[tiles_a][tiles_b][4];
    float low[tiles_a][tiles_b][4];

    ZINC_DEVICE static unsigned group() { return warp_id() / group_warps; }
    ZINC_DEVICE static unsigned first_a() { return warp_id() % warps_a * warp_side; }
    ZINC_DEVICE static unsigned first_b() { return warp_id() % group_warps / warps_a * warp_side; }

    ZINC_DEVICE void add_step(const Stage& stage) {
      const unsigned lane = lane_id() ^ (group() % 2 * 4);
      uint32_t high_a[tiles_a][4];
      uint32_t low_a[tiles_a][4];
#pragma unroll
      for (unsigned i = 0; i < tiles_a; ++i) {
        words(high_a[i], stage.high_a[first_a() / 16 + i][group()][lane]);
        words(low_a[i], stage.low_a[first_a() / 16 + i][group()][lane]);
      }
      uint32_t high_b[tiles_b][2];
      uint32_t low_b[tiles_b][2];
#pragma unroll
      for (unsigned j = 0; j < tiles_b; ++j) {
        const uint4 b = stage.b[first_b() / 8 + j][group()][lane];
        high_b[j][0] = b.x;
        high_b[j][1] = b.y;
        low_b[j][0] = b.z;
        low_b[j][1] = b.w;
      }
      // An instruction takes long: the next one into the same sums should not follow at once.
      const auto multiply_all = [](auto& sums, const uint32_t (&a)[tiles_a][4], const uint32_t (&b)[tiles_b][2]) {
#pragma unroll
        for (unsigned j = 0; j < tiles_b; ++j) {
#pragma unroll
          for (unsigned i = 0; i < tiles_a; ++i) mma_half(sums[i][j], a[i], b[j]);
        }
      };
      multiply_all(high, high_a, high_b);
      multiply_all(low, high_a, low_b);
      multiply_all(low, low_a, high_b);
    }

    ZINC_DEVICE void store(Sums (&sums)[groups]) const {
      float* const to = &sums[group()][first_b() + lane_id() % 4 * 2][first_a() + lane_id() / 4];
#pragma unroll
      for (unsigned i = 0; i < tiles_a; ++i) {
#pragma unroll
        for (unsigned j = 0; j < tiles_b; ++j) {
#pragma unroll
          for (unsigned e = 0; e < 4; ++e) {
            to[(8 * j + e % 2) * sums_pitch + 16 * i + e / 2 * 8] = fmaf(low[i][j][e], 1 / low_scale, high[i][j][e]);
          }
        }
      }
    }

   private:
    ZINC_DEVICE static void words(uint32_t (&to)[4], const uint4& from) {
      to[0] = from.x;
      to[1] = from.y;
      to[2] = from.z;
      to[3] = from.w;
    }
  };
};

}  // namespace zinc
