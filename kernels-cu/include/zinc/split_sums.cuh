// What the products of f32 matrices on the tensor cores have in common: numbers in two parts, and the sums of a tile
// that the blocks of a cluster share.
#pragma once
#include "zinc/cluster.cuh"
#include "zinc/half.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// Rows of a matrix in memory, `pitch` elements apart.
struct FloatRows {
  const float* __restrict__ data;
  uint64_t pitch;
  uint32_t count;

  // Rows past the end repeat the last one.
  ZINC_DEVICE const float* row(uint64_t i) const { return data + min(i, uint64_t{count} - 1) * pitch; }
};

// A number x becomes the binary16 numbers high = x and low = 2^11 (x - high), rounded, which together are off by at
// most 2^-23 |x| + 2^-36. The products high * high and high * low are summed in f32; low * low is left out. So a sum
// over w x is off by 2^-21 times the sum of |w x|, the rounding of f32 sums, and 2^-36 times the sum of |w| + |x|. The
// last part is below 5e-7 and nothing overflows if the sums of |w| and of |x| are below `split_most`, which is checked.
constexpr float split_most = 16384.0f;
constexpr float split_low_scale = 2048.0f;

// Two numbers in two parts.
struct SplitPair {
  uint32_t high;
  uint32_t low;

  ZINC_DEVICE SplitPair(float x, float y) : high(floats_to_halves(x, y)) {
    const float rest_x = x - half_to_float(static_cast<uint16_t>(high));
    const float rest_y = y - half_to_float(static_cast<uint16_t>(high >> 16));
    low = floats_to_halves(rest_x * split_low_scale, rest_y * split_low_scale);
  }
};

ZINC_DEVICE float absolutes(float4 x) { return (fabsf(x.x) + fabsf(x.y)) + (fabsf(x.z) + fabsf(x.w)); }

// The tile that starts with row first_a of A and first_b of B.
struct SplitPlace {
  const FloatRows& a;
  const FloatRows& b;
  uint64_t first_a;
  uint64_t first_b;
};

// The sums of a tile of rows_a rows of A by rows_b rows of B, of which every block of a cluster has `places` parts.
template <unsigned rows_a, unsigned rows_b, unsigned threads, unsigned places>
struct SplitSums {
  static constexpr unsigned warps = threads / warp_size;
  // Row t of B with row r of A. The pitch puts the lanes' stores into different banks.
  static constexpr unsigned pitch = rows_a + 4;
  using Sums = float[rows_b][pitch];
  struct Shared {
    Sums sums[places];
    uint32_t refused[warps];
  };

  // Calls store(r, t, sum) for the sums of all blocks, in a fixed order, for row r of A and row t of B. False if a
  // thread of a block has `refused`; then nothing is stored. Every thread of the cluster must call this when it has
  // written its block's sums.
  template <class Store>
  ZINC_DEVICE static bool merge(Shared& shared, bool refused, const SplitPlace& place, Store store) {
    const uint32_t blocks = cluster_blocks();
    const uint32_t rank = cluster_rank();
    const uint32_t refusing = __ballot_sync(full_warp, refused);
    if (lane_id() == 0) shared.refused[warp_id()] = refusing;
    if (blocks > 1) {
      cluster_barrier();
    } else {
      __syncthreads();
    }
    // The first sums are loaded beside what the blocks have refused.
    const uint32_t end = Quads::all * (rank + 1) / blocks;
    uint32_t at = Quads::all * rank / blocks + threadIdx.x;
    uint32_t any_refused = 0;
#pragma unroll
    for (unsigned i = lane_id(); i < max_cluster * warps; i += warp_size) {
      if (i < blocks * warps) any_refused |= *cluster_peer(&shared.refused[i % warps], i / warps);
    }
    Quads quads(shared.sums, at, end, blocks);
    if (__any_sync(full_warp, any_refused != 0)) {
      cluster_leave();
      return false;
    }
    for (;;) {
      quads.store(at, end, [=](unsigned r, unsigned t, float sum) {
        if (place.first_a + r < place.a.count && place.first_b + t < place.b.count) {
          store(place.first_a + r, place.first_b + t, sum);
        }
      });
      at += Quads::count * threads;
      if (at >= end) break;
      quads = Quads(shared.sums, at, end, blocks);
    }
    cluster_leave();
    return true;
  }

 private:
  // Sums of the tile, four each of the places first, first + threads, .. before the end, from those of the blocks.
  struct Quads {
    static constexpr unsigned row_quads = rows_a / 4;
    static constexpr unsigned all = row_quads * rows_b;
    static constexpr unsigned count = all >= 8 * threads ? 2 : 1;
    // All loads of a batch of blocks go before the first of them is waited for.
    static constexpr unsigned batch = 8;
    float4 sum[count];

    ZINC_DEVICE Quads(const Sums (&sums)[places], uint32_t first, uint32_t end, uint32_t blocks) {
#pragma unroll
      for (unsigned n = 0; n < count; ++n) sum[n] = make_float4(0, 0, 0, 0);
      for (uint32_t block = 0; block < blocks; block += batch) {
        float4 part[count][batch][places];
#pragma unroll
        for (unsigned n = 0; n < count; ++n) {
          const uint32_t at = first + n * threads;
#pragma unroll
          for (unsigned i = 0; i < batch; ++i) {
#pragma unroll
            for (unsigned p = 0; p < places; ++p) {
              part[n][i][p] = make_float4(0, 0, 0, 0);
              if (block + i < blocks && at < end) {
                const float* const from = &sums[p][at / row_quads][at % row_quads * 4];
                part[n][i][p] = *reinterpret_cast<const float4*>(cluster_peer(from, block + i));
              }
            }
          }
        }
#pragma unroll
        for (unsigned n = 0; n < count; ++n) {
#pragma unroll
          for (unsigned i = 0; i < batch; ++i) {
#pragma unroll
            for (unsigned p = 0; p < places; ++p) sum[n] = plus(sum[n], part[n][i][p]);
          }
        }
      }
    }

    template <class Store>
    ZINC_DEVICE void store(uint32_t first, uint32_t end, Store store_one) const {
#pragma unroll
      for (unsigned n = 0; n < count; ++n) {
        const uint32_t at = first + n * threads;
        if (at >= end) break;
        const unsigned r = at % row_quads * 4;
        const unsigned t = at / row_quads;
        store_one(r, t, sum[n].x);
        store_one(r + 1, t, sum[n].y);
        store_one(r + 2, t, sum[n].z);
        store_one(r + 3, t, sum[n].w);
      }
    }

    ZINC_DEVICE static float4 plus(float4 a, float4 b) {
      return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
  };
};

}  // namespace zinc
