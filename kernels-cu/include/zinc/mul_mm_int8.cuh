// Matrix-matrix products of quantized matrices with tokens that are quantized to int8 in blocks of 32 columns: exact
// integer sums per scale, f32 between them.
#pragma once

#include "zinc/activation.cuh"
#include "zinc/mul_mm_int8_dp4a.cuh"
#include "zinc/mul_mm_int8_mma.cuh"
#include "zinc/mul_mm_int8_wgmma.cuh"

namespace zinc {

// How the integer sums are formed. All forms give the same bits: the sums are exact, and what follows has one order.
enum class DotForm {
  dp4a,   // four products per thread and instruction
  mma,    // 16 rows of 8 tokens per warp and instruction
  wgmma,  // 64 tokens of 64 rows per warpgroup and instruction
};
constexpr DotForm native_dot_form = ZINC_WGMMA ? DotForm::wgmma : ZINC_ARCH >= 80 ? DotForm::mma : DotForm::dp4a;

// A block computes `rows` rows of each matrix for `tokens` tokens. In the forms of the tensor cores it computes smaller
// tiles where the large ones are fewer than `few`.
template <unsigned rows_, unsigned tokens_, unsigned small_rows_, unsigned small_tokens_, unsigned few_,
          unsigned threads_, DotForm form_ = native_dot_form>
struct Int8Tiles {
  static constexpr DotForm form = form_;
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned small_rows = small_rows_;
  static constexpr unsigned small_tokens = small_tokens_;
  static constexpr unsigned few = few_;
  static constexpr unsigned threads = threads_;
  // How far apart the lanes are that hold neighbouring fours of a token, where a lane has `rows` rows.
  template <unsigned rows>
  static constexpr unsigned row_lane_stride = form == DotForm::dp4a || rows > 4 ? 1 : 4;

  static ZINC_DEVICE bool are_few(uint32_t m, uint32_t n) {
    if constexpr (few == 0) {
      return false;
    } else {
      return tile_count<rows, tokens>(m, n) < few;
    }
  }
};
constexpr unsigned four_distance = 16;

template <class Shape, class Scales, bool wide, class Format, unsigned bytes, unsigned matrices, class Finish>
ZINC_DEVICE void mma_tiles(const uint8_t* const (&matrix)[matrices], const Int8Tokens& x, uint32_t m, uint32_t k,
                           Finish finish) {
  using Tile = MmaTile<wide, Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  const TilePlace at = tile_place<Shape::matrix_rows, Shape::tokens>(x.count);
  if (at.row < m)
    mma_tile<Scales, wide, Format, Shape>(*tile, matrix, m, k, static_cast<uint32_t>(at.row), x, at.token, finish);
}

// The same in a grid of any size by all warps of the larger blocks of warpgroups.
template <bool wide, class Scales, unsigned bytes, class Format, class Tiles, unsigned matrices, class Finish>
ZINC_DEVICE void warps_tiles(const uint8_t* const (&matrix)[matrices], const Int8Tokens& x, uint32_t m, uint32_t k,
                             Finish finish) {
  using Shape = MmaShape<Tiles::threads / 4 * matrices, matrices == 1 ? 64 : 96, Tiles::threads, matrices>;
  using Tile = MmaTile<wide, Format, Shape>;
  static_assert(sizeof(Tile) <= bytes, "the tile is in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  for_tiles<Shape::matrix_rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t token) {
    mma_tile<Scales, wide, Format, Shape>(*tile, matrix, m, k, row, x, token, finish);
    __syncthreads();
  });
}

// For every tile, thread and token of the thread: finish(row, token, sums[r][matrix]) with the sums of fours of rows,
// of which the first are row .. row + 3 and the others four_distance further on each, also past the end of the rows or
// tokens. All lanes of a warp call it together. a_offset counts bytes. `bytes` is the size of the dynamic shared
// memory.
template <class Format, class Tiles, class Scales, unsigned bytes, unsigned matrices, class Push, class Finish>
ZINC_DEVICE void mul_mm_int8_with(const uint8_t* const (&matrix)[matrices], const uint32_t* b_packed,
                                  const float* b_scales, const Push& p, Finish finish) {
  const Int8Tokens x{b_packed, b_scales, p.stride_b_packed, p.stride_b_scale, p.n};
  if constexpr (Tiles::form == DotForm::wgmma) {
    constexpr unsigned bringers = Tiles::threads / warpgroup_threads - 2;
    using Shape = Int8WgmmaShape<Tiles::tokens / 128, matrices, bringers>;
    using Small = Int8WgmmaShape<Tiles::small_tokens / 128, matrices, bringers>;
    static_assert(Shape::block_threads == Tiles::threads && Shape::tokens == Tiles::tokens);
    static_assert(Shape::matrix_rows == Tiles::rows && Shape::matrix_rows == Tiles::small_rows);
    bool wide = is_aligned(x.packed, 16) && x.packed_pitch % 4 == 0 && p.k % chunk_columns == 0;
    constexpr bool level = WgmmaRows<Format, Shape>::level;
    if constexpr (level) {
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], 16);
    }
    // A warpgroup takes 64 tokens, whether they are there or not.
    const bool by_groups = wide && p.n > 64;
    if (by_groups && !Tiles::are_few(p.m, p.n)) {
      wgmma_tiles<Scales, bytes, Format, Shape>(matrix, x, p.m, p.k, finish);
    } else if (by_groups) {
      wgmma_tiles<Scales, bytes, Format, Small>(matrix, x, p.m, p.k, finish);
    } else if (level && wide) {
      warps_tiles<level, Scales, bytes, Format, Tiles>(matrix, x, p.m, p.k, finish);
    } else {
      warps_tiles<false, Scales, bytes, Format, Tiles>(matrix, x, p.m, p.k, finish);
    }
  } else if constexpr (Tiles::form == DotForm::mma) {
    using Shape = MmaShape<Tiles::rows * matrices, Tiles::tokens, Tiles::threads, matrices>;
    using Small = MmaShape<Tiles::small_rows * matrices, Tiles::small_tokens, Tiles::threads, matrices>;
    bool wide = is_aligned(x.packed, 16) && x.packed_pitch % 4 == 0;
    if constexpr (MmaRows<true, Format, Shape>::level) {
      wide = wide && p.k % chunk_columns == 0;
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], 16);
    }
    if (wide && !Tiles::are_few(p.m, p.n)) {
      mma_tiles<Shape, Scales, true, Format, bytes>(matrix, x, p.m, p.k, finish);
      return;
    }
    if (wide) {
      mma_tiles<Small, Scales, true, Format, bytes>(matrix, x, p.m, p.k, finish);
    } else {
      mma_tiles<Small, Scales, false, Format, bytes>(matrix, x, p.m, p.k, finish);
    }
  } else {
    constexpr unsigned step = 2 * Format::run_distance > 64 ? 2 * Format::run_distance : 64;
    using Shape = Dp4aShape<Tiles::rows, Tiles::tokens, Tiles::threads, step>;
    using Tile = Dp4aTile<Format, Shape, matrices>;
    static_assert(2 * sizeof(Tile) <= bytes, "two steps are in shared memory");
    ZINC_DYNAMIC_SHARED(Tile, tile);
    for_tiles<Shape::rows, Shape::tokens>(p.m, p.n, [&](uint32_t row, uint32_t token) {
      dp4a_tile<Scales>(tile, matrix, x, p.m, p.k, row, token, finish);
    });
  }
}

// Stores the rows before m of the thread's fours of rows at `out`, whose first is `row`.
template <unsigned rows>
ZINC_DEVICE void store_rows(float* out, uint32_t row, uint32_t m, const float (&values)[rows]) {
#pragma unroll
  for (unsigned i = 0; i < rows; i += 4) {
    const unsigned at = i / 4 * four_distance;
    if (row + at + 4 <= m && is_aligned(out, sizeof(float4))) {
      *reinterpret_cast<float4*>(out + at) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
      continue;
    }
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) {
      if (row + at + r < m) out[at + r] = values[i + r];
    }
  }
}

// d[t * stride_d + r] = sum of row r times token t.
template <class Format, class Tiles, class Scales, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8(const uint8_t* a, const uint32_t* b_packed, const float* b_scales, float* d,
                             const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_int8_with<Format, Tiles, Scales, bytes>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const auto& sums) {
        if (token >= p.n) return;
        constexpr unsigned rows = sizeof sums / sizeof sums[0];
        float v[rows];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) v[r] = sums[r][0];
        store_rows(d + p.d_offset + uint64_t{token} * p.stride_d + row, row, p.m, v);
      });
}

// d[t * stride_d + r] = silu(gate sum) * up sum.
template <class Format, class Tiles, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                    const float* b_scales, float* d, const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Tiles, ScaleSumPairs, bytes>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const auto& sums) {
        if (token >= p.n) return;
        constexpr unsigned rows = sizeof sums / sizeof sums[0];
        float v[rows];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) v[r] = silu(sums[r][0]) * sums[r][1];
        store_rows(d + p.d_offset + uint64_t{token} * p.stride_d + row, row, p.m, v);
      });
}

// The silu of the requantizing kernels: their contract cuts it off beyond 8.
ZINC_DEVICE float silu_cut(float x) {
  constexpr float cutoff = 8.0f;
  return x > cutoff ? x : x < -cutoff ? 0.0f : silu(x);
}

// Quantizes 32 neighbouring rows of a token, held by lanes `stride` apart, `rows` each: the words of this lane's
// quants, and the scale and the integer sum of all in every lane.
template <unsigned stride, unsigned rows>
struct QuantizedRows {
  uint32_t word[rows / 4];
  float scale;
  int32_t sum;

  explicit ZINC_DEVICE QuantizedRows(const float (&v)[rows]) {
    constexpr unsigned lanes = 32 / rows;
    constexpr float top = 127.0f;
    float largest = 0.0f;
#pragma unroll
    for (unsigned r = 0; r < rows; r += 4) {
      const float four = fmaxf(fmaxf(fabsf(v[r]), fabsf(v[r + 1])), fmaxf(fabsf(v[r + 2]), fabsf(v[r + 3])));
      largest = r == 0 ? four : fmaxf(largest, four);
    }
    largest = warp_max<lanes, stride>(largest);
    scale = largest / top;
    // A block that is zero, or so small that the factor overflows, has zero quants.
    const float factor = top / largest;
    const bool usable = largest > 0.0f && factor < __uint_as_float(0x7F800000u);
    sum = 0;
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      // The limits come first: a NaN of a padding token must not reach the conversion.
      const int32_t q = usable ? __float2int_rn(fminf(fmaxf(v[r] * factor, -top), top)) : 0;
      if (r % 4 == 0) word[r / 4] = 0;
      word[r / 4] |= (static_cast<uint32_t>(q) & 0xFFu) << (8 * (r % 4));
      sum += q;
    }
    sum = warp_sum<lanes, stride>(sum);
  }
};

// silu_cut(gate) * up, quantized per token in blocks of 32 rows. m is a multiple of 32; d_packed_offset counts words,
// d_scale_offset scale entries.
template <class Format, class Tiles, class OutScales, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu_requantized(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                                const float* b_scales, uint32_t* d_packed, float* d_scales,
                                                const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Tiles, ScaleSumPairs, bytes>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const auto& sums) {
        constexpr unsigned rows = sizeof sums / sizeof sums[0];
        float v[rows];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) v[r] = silu_cut(sums[r][0]) * sums[r][1];
        const QuantizedRows<Tiles::template row_lane_stride<rows>, rows> quantized(v);
        if (row >= p.m || token >= p.n) return;
#pragma unroll
        for (unsigned i = 0; i < rows / 4; ++i) {
          d_packed[p.d_packed_offset + uint64_t{token} * p.stride_d_packed + (row + i * four_distance) / 4] =
              quantized.word[i];
        }
        if (row % 32 == 0) {
          float* const entry =
              d_scales + (p.d_scale_offset + uint64_t{token} * p.stride_d_scale + row / 32) * OutScales::floats;
          entry[0] = quantized.scale;
          if constexpr (OutScales::floats == 2) entry[1] = quantized.scale * static_cast<float>(quantized.sum);
        }
      });
}

}  // namespace zinc
