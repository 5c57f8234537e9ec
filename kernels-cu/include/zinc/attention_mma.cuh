// Attention of eight query rows to sixteen keys at a time on the tensor cores, with the accuracy of f32.
#pragma once
#include "zinc/async_copy.cuh"
#include "zinc/attention.cuh"
#include "zinc/split_float.cuh"

namespace zinc {

ZINC_DEVICE float element_of(float4 quad, unsigned i) {
  return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

// The work of one warp on heads of `head_dim` elements. With group = lane / 4 and part = lane % 4, a lane holds the
// scores of the keys group and group + 8 of a tile for the rows 2 part and 2 part + 1, and the outputs of these rows
// for a sixteenth of the elements.
template <unsigned head_dim>
struct MmaAttention {
  static constexpr unsigned rows = 8;
  static constexpr unsigned keys = 16;
  static constexpr unsigned lane_rows = 2;
  static constexpr unsigned head_quads = head_dim / 4;
  static constexpr unsigned query_pitch = head_quads + 4;
  static constexpr unsigned tiles = head_dim / 16;
  static_assert(head_dim % 64 == 0, "whole tiles");
  // The outputs of longer heads leave no registers for a first part of its own.
  using Value = SplitOperand<(head_dim <= 256)>;
  static constexpr unsigned key_unroll = head_dim <= 256 ? 16 : 8;  // likewise

  struct Queries {
    float4 high[rows][query_pitch];
    float4 low[rows][query_pitch];
  };
  using Weights = float[keys][rows];
  // The three products of split numbers, each for two halves of the columns: an instruction takes long, so that the
  // next one into the same sums should not follow at once.
  using Sums = float[6][4];

  // The sums of the lane's rows; `sum` is of the lane's keys only until reduce_sums.
  float max[lane_rows];
  float sum[lane_rows];
  float out[tiles][4];

  ZINC_DEVICE static unsigned group() { return lane_id() / 4; }
  ZINC_DEVICE static unsigned part() { return lane_id() % 4; }

  ZINC_DEVICE void clear() {
#pragma unroll
    for (unsigned e = 0; e < lane_rows; ++e) {
      max[e] = attention_floor;
      sum[e] = 0.0f;
    }
#pragma unroll
    for (unsigned i = 0; i < tiles; ++i) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) out[i][e] = 0.0f;
    }
  }

  // The share of thread `first` of `threads` of storing eight rows in two parts. Row r is at q + min(r, last) * stride.
  ZINC_DEVICE static void split_queries(Queries& queries, const float* q, uint64_t stride, uint32_t last,
                                        unsigned first, unsigned threads) {
    for (unsigned i = first; i < rows * head_quads; i += threads) {
      const unsigned r = i / head_quads;
      const unsigned quad = i % head_quads;
      const float4 x = *reinterpret_cast<const float4*>(q + min(r, last) * stride + 4 * quad);
      const SplitFloat<> s[4] = {SplitFloat<>(x.x), SplitFloat<>(x.y), SplitFloat<>(x.z), SplitFloat<>(x.w)};
      queries.high[r][quad] = make_float4(__uint_as_float(s[0].high), __uint_as_float(s[1].high),
                                          __uint_as_float(s[2].high), __uint_as_float(s[3].high));
      queries.low[r][quad] = make_float4(__uint_as_float(s[0].low), __uint_as_float(s[1].low),
                                         __uint_as_float(s[2].low), __uint_as_float(s[3].low));
    }
  }

  // sums += the products of the quads first .. first + quads - 1 of the keys with those of the queries. quad(key, i) is
  // quad first + i of a key; a lane asks for those of the keys group and group + 8 with i % 4 = part, eight lanes at
  // once for four quads of two keys. The columns of an instruction may be any dimensions, if both operands have the
  // same: a lane's quad gives the columns part and part + 4 of two of them.
  template <unsigned quads, class Quad>
  ZINC_DEVICE static void multiply_keys(Sums& sums, Quad quad, const Queries& queries, unsigned first) {
#pragma unroll key_unroll
    for (unsigned i = 0; i < quads; i += 4) {
      const float4 near = quad(group(), i + part());
      const float4 far = quad(group() + 8, i + part());
      const float4 high = queries.high[group()][first + i + part()];
      const float4 low = queries.low[group()][first + i + part()];
      const uint32_t high_xy[2] = {__float_as_uint(high.x), __float_as_uint(high.y)};
      const uint32_t high_zw[2] = {__float_as_uint(high.z), __float_as_uint(high.w)};
      const uint32_t low_xy[2] = {__float_as_uint(low.x), __float_as_uint(low.y)};
      const uint32_t low_zw[2] = {__float_as_uint(low.z), __float_as_uint(low.w)};
      const SplitOperand<> xy(near.x, far.x, near.y, far.y);
      const SplitOperand<> zw(near.z, far.z, near.w, far.w);
      mma_tf32(sums[0], xy.high, high_xy);
      mma_tf32(sums[1], zw.high, high_zw);
      mma_tf32(sums[2], xy.high, low_xy);
      mma_tf32(sums[3], zw.high, low_zw);
      mma_tf32(sums[4], xy.low, high_xy);
      mma_tf32(sums[5], zw.low, high_zw);
    }
  }

  // Adds the weighted quads first .. first + quads - 1 of the values. quad(key, i) is quad first + i of a key; eight
  // lanes at once ask for two neighbouring quads of four keys.
  template <unsigned quads, class Quad>
  ZINC_DEVICE void add_values(Quad quad, const Weights& weights, unsigned first) {
    static_assert(quads % 16 == 0, "whole tiles");
#pragma unroll
    for (unsigned s = 0; s < keys; s += 8) {
      const SplitFloat<> near(weights[s + part()][group()]);
      const SplitFloat<> far(weights[s + part() + 4][group()]);
      const uint32_t high[2] = {near.high, far.high};
      const uint32_t low[2] = {near.low, far.low};
#pragma unroll
      for (unsigned i = 0; i < quads; i += 16) {
        const unsigned near_key = s + part();
        const unsigned far_key = near_key + 4;
        const float4 v[4] = {quad(near_key, i + group()), quad(near_key, i + 8 + group()), quad(far_key, i + group()),
                             quad(far_key, i + 8 + group())};
        const unsigned tile = (first + i) / 4;
        const auto add = [&](unsigned e, const Value& a, const Value& b) {
          mma_tf32(out[tile + e], a.low, high);
          mma_tf32(out[tile + e + 1], b.low, high);
          mma_tf32(out[tile + e], a.high, low);
          mma_tf32(out[tile + e + 1], b.high, low);
          mma_tf32(out[tile + e], a.high, high);
          mma_tf32(out[tile + e + 1], b.high, high);
        };
        add(0, {v[0].x, v[1].x, v[2].x, v[3].x}, {v[0].y, v[1].y, v[2].y, v[3].y});
        add(2, {v[0].z, v[1].z, v[2].z, v[3].z}, {v[0].w, v[1].w, v[2].w, v[3].w});
      }
    }
  }

  // add_values for tiles in which sees(row, key) is not always true: a value that a row does not see must not touch its
  // output even with weight 0, as it may be NaN.
  template <class Quad, class Sees>
  ZINC_DEVICE void add_seen_values(Quad quad, const Weights& weights, Sees sees) {
    for (unsigned key = 0; key < keys; ++key) {
#pragma unroll
      for (unsigned e = 0; e < lane_rows; ++e) {
        const unsigned row = 2 * part() + e;
        if (!sees(row, key)) continue;
        const float weight = weights[key][row];
#pragma unroll
        for (unsigned i = 0; i < tiles; i += 4) {
          const float4 near = quad(key, 4 * i + group());
          const float4 far = quad(key, 4 * i + 8 + group());
#pragma unroll
          for (unsigned j = 0; j < 4; ++j) {
            out[i + j][e] = fmaf(weight, element_of(near, j), out[i + j][e]);
            out[i + j][e + 2] = fmaf(weight, element_of(far, j), out[i + j][e + 2]);
          }
        }
      }
    }
  }

  // Turns scores into weights, and moves the sums and the outputs to a new maximum where there is one. Score i is of
  // lane row i % 2.
  ZINC_DEVICE void weigh(float (&score)[4]) {
    float new_max[lane_rows];
#pragma unroll
    for (unsigned e = 0; e < lane_rows; ++e) {
      new_max[e] = fmaxf(max[e], warp_max<8, 4>(fmaxf(score[e], score[e + 2])));
    }
    if (__any_sync(full_warp, new_max[0] > max[0] || new_max[1] > max[1])) {
#pragma unroll
      for (unsigned e = 0; e < lane_rows; ++e) {
        const float shrink = expf(max[e] - new_max[e]);
        max[e] = new_max[e];
        sum[e] *= shrink;
#pragma unroll
        for (unsigned i = 0; i < tiles; ++i) {
          out[i][e] *= shrink;
          out[i][e + 2] *= shrink;
        }
      }
    }
    // The maximum is never -infinity, so the exponents are NaN only for a NaN score or a score of +infinity, which the
    // contract wants to see in the sum and the output.
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      score[i] = expf(score[i] - max[i % 2]);
      sum[i % 2] += score[i];
    }
  }

  // The lane's scores without the tensor cores, whose two parts of a number make NaN of an infinity. lane_row is the
  // first element of the row of key lane % keys; row r of the queries is at q + min(r, last) * stride.
  ZINC_DEVICE static void multiply_plainly(float (&score)[4], const float* q, uint64_t stride, uint32_t last,
                                           const float* k, uint64_t lane_row) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const float* const key = k + __shfl_sync(full_warp, lane_row, i / 2 * 8 + group());
      const float* const query = q + min(2 * part() + i % 2, last) * stride;
      score[i] = 0.0f;
#pragma unroll 4
      for (unsigned d = 0; d < head_dim; ++d) score[i] = fmaf(query[d], key[d], score[i]);
    }
  }

  // The scores, not yet scaled; false if the warp has one that is not finite.
  ZINC_DEVICE static bool join(float (&score)[4], const Sums& sums) {
    bool finite = true;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      score[i] = (sums[0][i] + sums[1][i]) + ((sums[2][i] + sums[3][i]) + (sums[4][i] + sums[5][i]));
      finite &= fabsf(score[i]) < INFINITY;
    }
    return __all_sync(full_warp, finite);
  }

  ZINC_DEVICE static void store_weights(Weights& weights, const float (&weight)[4]) {
    *reinterpret_cast<float2*>(&weights[group()][2 * part()]) = make_float2(weight[0], weight[1]);
    *reinterpret_cast<float2*>(&weights[group() + 8][2 * part()]) = make_float2(weight[2], weight[3]);
  }

  ZINC_DEVICE void reduce_sums() {
#pragma unroll
    for (unsigned e = 0; e < lane_rows; ++e) sum[e] = warp_sum<8, 4>(sum[e]);
  }

  // Calls store(row, quad, O[4 quad .. 4 quad + 3]) for all that the lane holds.
  template <class Store>
  ZINC_DEVICE void for_each_output(Store store) const {
#pragma unroll
    for (unsigned i = 0; i < tiles; i += 4) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const unsigned quad = 4 * i + 8 * (e / 2) + group();
        store(2 * part() + e % 2, quad, make_float4(out[i][e], out[i + 1][e], out[i + 2][e], out[i + 3][e]));
      }
    }
  }
};

}  // namespace zinc
