// Matrix-matrix products of quantized matrices with tokens that are quantized to int8 in blocks of 32 columns: exact
// integer sums per scale, f32 between them.
#pragma once

#include "zinc/mul_mm.cuh"

namespace zinc {

// The scale buffers that accompany packed int8 quants, one entry per token and block of 32: (scale, scale * sum of the
// quants) pairs as quantize_act_q8_1 writes them, or single scales as quantize_act_q8 does.
struct ScaleSumPairs {
  static constexpr unsigned floats = 2;
};
struct SingleScales {
  static constexpr unsigned floats = 1;
};

// Packed quants and scales of `count` tokens; pitches in words and in scale entries.
struct Int8Tokens {
  const uint32_t* packed;
  const float* scales;
  uint64_t packed_pitch;
  uint64_t scale_pitch;
  uint32_t count;
};

template <class Format_, class Shape_, unsigned matrices>
struct Int8Tile {
  using Format = Format_;
  using Shape = Shape_;
  static constexpr unsigned words = Shape::step / 4;
  static constexpr unsigned scales = Shape::step / Format::scale_columns;

  alignas(16) uint32_t a[matrices][words][Shape::rows + 4];
  alignas(16) uint32_t b[words][Shape::tokens + 4];
  float a_scale[matrices][scales][Shape::rows];
  float a_minimum[matrices][Format::has_minimum ? Shape::rows : 1];
  float b_scale[Shape::tokens];
  float b_sum[Format::has_minimum ? Shape::tokens : 1];
};

// Stages one block of 32 columns. Rows past the end are replaced by the last one, tokens past the end by zeros.
template <bool wide, class Scales, unsigned matrices, class Format, class Shape>
ZINC_DEVICE void stage_int8(Int8Tile<Format, Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices],
                            uint64_t row_pitch, uint32_t m, uint32_t row, const Int8Tokens& x, uint32_t token,
                            uint32_t block) {
  using Tile = Int8Tile<Format, Shape, matrices>;
  static_assert(!Format::has_minimum || Scales::floats == 2, "minimums need the sums of the quants");
  constexpr unsigned runs = Shape::step / run_columns;
  const unsigned r = threadIdx.x / runs;
  const unsigned g = threadIdx.x % runs;
  const uint64_t at = uint64_t{min(row + r, m - 1)} * row_pitch;
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) {
    const Run<Format> run = load_run<wide, Format>(matrix[i] + at, block * runs + g);
#pragma unroll
    for (unsigned w = 0; w < run_words; ++w) tile.a[i][run_words * g + w][r] = Format::Quants::to_int8(run.words[w]);
    if (g % (Format::scale_columns / run_columns) == 0) {
      tile.a_scale[i][g * run_columns / Format::scale_columns][r] = run.scale;
      if constexpr (Format::has_minimum) tile.a_minimum[i][r] = run.minimum;
    }
  }
  for (unsigned i = threadIdx.x; i < Shape::tokens * Tile::words; i += Shape::threads) {
    const unsigned t = i / Tile::words;
    const unsigned w = i % Tile::words;
    const bool present = token + t < x.count;
    tile.b[w][t] = present ? __ldg(x.packed + uint64_t{token + t} * x.packed_pitch + block * Tile::words + w) : 0u;
  }
  for (unsigned t = threadIdx.x; t < Shape::tokens; t += Shape::threads) {
    const bool present = token + t < x.count;
    const float* const entry = x.scales + (uint64_t{token + t} * x.scale_pitch + block) * Scales::floats;
    tile.b_scale[t] = present ? __ldg(entry) : 0.0f;
    if constexpr (Format::has_minimum) tile.b_sum[t] = present ? __ldg(entry + 1) : 0.0f;
  }
}

// Adds the products of the staged block with matrix i.
template <class Format, class Shape, unsigned matrices>
ZINC_DEVICE void add_int8(float (&sum)[Shape::thread_tokens][Shape::thread_rows],
                          const Int8Tile<Format, Shape, matrices>& tile, unsigned i) {
  using Tile = Int8Tile<Format, Shape, matrices>;
  constexpr unsigned scale_words = Format::scale_columns / 4;
  const unsigned row = Shape::first_row();
#pragma unroll
  for (unsigned s = 0; s < Tile::scales; ++s) {
    int32_t dots[Shape::thread_tokens][Shape::thread_rows] = {};
#pragma unroll
    for (unsigned w = s * scale_words; w < (s + 1) * scale_words; ++w) {
      const uint4 a4 = *reinterpret_cast<const uint4*>(&tile.a[i][w][row]);
      const uint4 lower = *reinterpret_cast<const uint4*>(&tile.b[w][Shape::token(0)]);
      const uint4 upper = *reinterpret_cast<const uint4*>(&tile.b[w][Shape::token(4)]);
      const uint32_t a[Shape::thread_rows] = {a4.x, a4.y, a4.z, a4.w};
      const uint32_t b[Shape::thread_tokens] = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
#pragma unroll
      for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
          dots[t][r] = __dp4a(static_cast<int32_t>(a[r]), static_cast<int32_t>(b[t]), dots[t][r]);
        }
      }
    }
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
      const float scale = tile.b_scale[Shape::token(t)];
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) {
        sum[t][r] = fmaf(scale * tile.a_scale[i][s][row + r], static_cast<float>(dots[t][r]), sum[t][r]);
        if constexpr (Format::has_minimum) {
          sum[t][r] = fmaf(-tile.a_minimum[i][row + r], tile.b_sum[Shape::token(t)], sum[t][r]);
        }
      }
    }
  }
}

template <bool wide, class Scales, unsigned matrices, class Format, class Shape, class Finish>
ZINC_DEVICE void int8_tiles(Int8Tile<Format, Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices],
                            const Int8Tokens& x, uint32_t m, uint32_t k, Finish finish) {
  static_assert(!Format::has_minimum || Format::scale_columns == Shape::step);
  for_tiles<Shape>(m, x.count, [&](uint32_t row, uint32_t token) {
    float sum[matrices][Shape::thread_tokens][Shape::thread_rows] = {};
    for (uint32_t block = 0; block < k / Shape::step; ++block) {
      __syncthreads();  // the last readers of the tile are done
      stage_int8<wide, Scales>(tile, matrix, row_bytes<Format>(k), m, row, x, token, block);
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) add_int8(sum[i], tile, i);
    }
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
      float sums[Shape::thread_rows][matrices];
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
        for (unsigned i = 0; i < matrices; ++i) sums[r][i] = sum[i][t][r];
      }
      finish(row + Shape::first_row(), token + Shape::token(t), sums);
    }
  });
}

// For every tile, thread and token of the thread: finish(row, token, sums[r][matrix]) with the sums of the rows row +
// r, also past the end of the rows or tokens. All lanes of a warp call it together. a_offset counts bytes.
template <class Format, class Shape, class Scales, unsigned matrices, class Push, class Finish>
ZINC_DEVICE void mul_mm_int8_with(const uint8_t* const (&matrix)[matrices], const uint32_t* b_packed,
                                  const float* b_scales, const Push& p, Finish finish) {
  using Tile = Int8Tile<Format, Shape, matrices>;
  ZINC_SHARED(Tile, tile);
  const Int8Tokens x{b_packed, b_scales, p.stride_b_packed, p.stride_b_scale, p.n};
  if constexpr (Format::wide_alignment > Format::alignment) {
    bool wide = true;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], Format::wide_alignment);
    if (wide) {
      int8_tiles<true, Scales>(tile, matrix, x, p.m, p.k, finish);
      return;
    }
  }
  int8_tiles<false, Scales>(tile, matrix, x, p.m, p.k, finish);
}

// d[t * stride_d + r] = sum of row r times token t.
template <class Format, class Shape, class Scales, class Push>
ZINC_DEVICE void mul_mm_int8(const uint8_t* a, const uint32_t* b_packed, const float* b_scales, float* d,
                             const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_int8_with<Format, Shape, Scales>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][1]) {
        if (token >= p.n) return;
        float* const out = d + p.d_offset + uint64_t{token} * p.stride_d + row;
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
          if (row + r < p.m) out[r] = sums[r][0];
        }
      });
}

// d[t * stride_d + r] = silu(gate sum) * up sum.
template <class Format, class Shape, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                    const float* b_scales, float* d, const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Shape, ScaleSumPairs>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][2]) {
        if (token >= p.n) return;
        float* const out = d + p.d_offset + uint64_t{token} * p.stride_d + row;
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
          if (row + r < p.m) out[r] = silu(sums[r][0]) * sums[r][1];
        }
      });
}

// The silu of the requantizing kernels: their contract cuts it off beyond 8.
ZINC_DEVICE float silu_cut(float x) {
  constexpr float cutoff = 8.0f;
  return x > cutoff ? x : x < -cutoff ? 0.0f : silu(x);
}

// Quantizes 32 neighbouring rows of a token, held four each by eight neighbouring lanes in row order: the word of this
// lane's four quants, and the scale and the integer sum of all in every lane.
struct QuantizedRows {
  uint32_t word;
  float scale;
  int32_t sum;

  explicit ZINC_DEVICE QuantizedRows(const float (&v)[4]) {
    constexpr unsigned lanes = 8;
    constexpr float top = 127.0f;
    const float largest = warp_max<lanes>(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))));
    scale = largest / top;
    // A block that is zero, or so small that the factor overflows, has zero quants.
    const float factor = top / largest;
    const bool usable = largest > 0.0f && factor < __uint_as_float(0x7F800000u);
    word = 0;
    sum = 0;
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) {
      // The limits come first: a NaN of a padding token must not reach the conversion.
      const int32_t q = usable ? __float2int_rn(fminf(fmaxf(v[r] * factor, -top), top)) : 0;
      word |= (static_cast<uint32_t>(q) & 0xFFu) << (8 * r);
      sum += q;
    }
    sum = warp_sum<lanes>(sum);
  }
};

// silu_cut(gate) * up, quantized per token in blocks of 32 rows. m is a multiple of 32; d_packed_offset counts words,
// d_scale_offset scale entries.
template <class Format, class Shape, class OutScales, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu_requantized(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                                const float* b_scales, uint32_t* d_packed, float* d_scales,
                                                const Push& p) {
  static_assert(Shape::rows % 32 == 0 && Shape::thread_rows == 4, "eight neighbouring lanes hold a block of 32 rows");
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Shape, ScaleSumPairs>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][2]) {
        float v[Shape::thread_rows];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) v[r] = silu_cut(sums[r][0]) * sums[r][1];
        const QuantizedRows quantized(v);
        if (row >= p.m || token >= p.n) return;
        d_packed[p.d_packed_offset + uint64_t{token} * p.stride_d_packed + row / 4] = quantized.word;
        if (row % 32 == 0) {
          float* const entry =
              d_scales + (p.d_scale_offset + uint64_t{token} * p.stride_d_scale + row / 32) * OutScales::floats;
          entry[0] = quantized.scale;
          if constexpr (OutScales::floats == 2) entry[1] = quantized.scale * static_cast<float>(quantized.sum);
        }
      });
}

}  // namespace zinc
