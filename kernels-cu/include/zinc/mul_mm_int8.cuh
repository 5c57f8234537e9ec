// Matrix-matrix products of quantized matrices with tokens that are quantized to int8 in blocks of 32 columns: exact
// integer sums per scale, f32 between them.
#pragma once

#include "zinc/mma.cuh"
#include "zinc/mul_mm.cuh"

namespace zinc {

// How the integer sums are formed. Both forms give the same bits: the sums are exact, and what follows is one code.
enum class DotForm {
  dp4a,  // four products per thread and instruction
  mma,   // 16 rows of 8 tokens per warp and instruction
};
constexpr DotForm native_dot_form = ZINC_ARCH >= 80 ? DotForm::mma : DotForm::dp4a;

// A tile as MulMmShape has it, with the outputs where the form leaves them. In the mma form a warp computes 32 rows of
// 32 tokens, and a thread four neighbouring rows of eight neighbouring tokens.
template <unsigned rows, unsigned tokens, unsigned threads, DotForm form_ = native_dot_form>
struct Int8Shape : MulMmShape<rows, tokens, threads> {
  using Base = MulMmShape<rows, tokens, threads>;
  static constexpr DotForm form = form_;
  static constexpr bool by_warps = form == DotForm::mma;
  static constexpr unsigned warp_rows = 32;
  static constexpr unsigned warp_tokens = 32;
  static_assert(!by_warps || (rows % warp_rows == 0 && tokens % warp_tokens == 0), "every output has one warp");
  static_assert(Base::thread_rows == 4 && Base::thread_tokens == 8, "both are read 16 bytes at a time");

  // How far apart the lanes are that hold neighbouring rows of a token.
  static constexpr unsigned row_lane_stride = by_warps ? 4 : 1;

  static ZINC_DEVICE unsigned first_row() {
    return by_warps ? warp_id() % (rows / warp_rows) * warp_rows + lane_id() / 4 * 4 : Base::first_row();
  }
  // The first token of the warp.
  static ZINC_DEVICE unsigned warp_token() { return warp_id() / (rows / warp_rows) * warp_tokens; }
  static ZINC_DEVICE unsigned token(unsigned i) {
    return by_warps ? warp_token() + lane_id() % 4 * 8 + i : Base::token(i);
  }
};

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
  static constexpr unsigned scale_words = Format::scale_columns / 4;
  static constexpr unsigned scales = words / scale_words;
  // In the mma form four lanes read words that are scale_words / 4 apart, 16 bytes each; with this padding they and
  // their neighbours fall into different banks.
  static constexpr unsigned padding = 32 / scale_words;
  static_assert(Shape::rows % 32 == 0 && Shape::tokens % 32 == 0, "the padding counts from a whole turn of the banks");

  alignas(16) uint32_t a[matrices][words][Shape::rows + padding];
  alignas(16) uint32_t b[words][Shape::tokens + padding];
  alignas(16) float a_scale[matrices][scales][Shape::rows];
  alignas(16) float a_minimum[matrices][Format::has_minimum ? Shape::rows : 4];
  alignas(16) float b_scale[Shape::tokens];
  alignas(16) float b_sum[Format::has_minimum ? Shape::tokens : 4];
};

// A thread's part of one block of 32 columns, on its way from global to shared memory. Rows past the end are replaced
// by the last one, tokens past the end by zeros.
template <class Scales, unsigned matrices, class Format, class Shape>
struct Int8Staged {
  using Tile = Int8Tile<Format, Shape, matrices>;
  static constexpr unsigned runs = Shape::step / run_columns;
  static constexpr unsigned token_words = Shape::tokens * Tile::words / Shape::threads;
  static constexpr unsigned token_stride = Shape::threads / Tile::words;
  static_assert(token_words * token_stride == Shape::tokens, "every thread stages equally many words");
  static_assert(Shape::tokens <= Shape::threads, "a thread stages the scale of one token at most");
  static_assert(!Format::has_minimum || Scales::floats == 2, "minimums need the sums of the quants");

  Run<Format> run[matrices];
  uint32_t words[token_words];
  float scale;
  float sum;

  // A block after the last one is replaced by the last.
  template <bool wide>
  ZINC_DEVICE void load(const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k, uint32_t row,
                        const Int8Tokens& x, uint32_t token, uint32_t block) {
    block = min(block, k / Shape::step - 1);
    const uint64_t at = uint64_t{min(row + threadIdx.x / runs, m - 1)} * row_bytes<Format>(k);
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
      run[i] = load_run<wide, Format>(matrix[i] + at, block * runs + threadIdx.x % runs);
    }
    const uint32_t first = token + threadIdx.x / Tile::words;
    const uint32_t* const packed =
        x.packed + uint64_t{first} * x.packed_pitch + block * Tile::words + threadIdx.x % Tile::words;
#pragma unroll
    for (unsigned j = 0; j < token_words; ++j) {
      const bool present = first + j * token_stride < x.count;
      words[j] = present ? __ldg(packed + j * token_stride * x.packed_pitch) : 0u;
    }
    const uint32_t mine = token + threadIdx.x;
    const bool present = threadIdx.x < Shape::tokens && mine < x.count;
    const float* const entry = x.scales + (uint64_t{mine} * x.scale_pitch + block) * Scales::floats;
    scale = present ? __ldg(entry) : 0.0f;
    if constexpr (Format::has_minimum) sum = present ? __ldg(entry + 1) : 0.0f;
  }

  ZINC_DEVICE void store(Tile& tile) const {
    const unsigned r = threadIdx.x / runs;
    const unsigned g = threadIdx.x % runs;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
#pragma unroll
      for (unsigned w = 0; w < run_words; ++w) {
        tile.a[i][run_words * g + w][r] = Format::Quants::to_int8(run[i].words[w]);
      }
      if (g % (Format::scale_columns / run_columns) == 0) {
        tile.a_scale[i][g * run_columns / Format::scale_columns][r] = run[i].scale;
        if constexpr (Format::has_minimum) tile.a_minimum[i][r] = run[i].minimum;
      }
    }
#pragma unroll
    for (unsigned j = 0; j < token_words; ++j) {
      tile.b[threadIdx.x % Tile::words][threadIdx.x / Tile::words + j * token_stride] = words[j];
    }
    if (threadIdx.x < Shape::tokens) {
      tile.b_scale[threadIdx.x] = scale;
      if constexpr (Format::has_minimum) tile.b_sum[threadIdx.x] = sum;
    }
  }
};

ZINC_DEVICE void read_four(const uint32_t* p, uint32_t (&values)[4]) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  values[0] = v.x;
  values[1] = v.y;
  values[2] = v.z;
  values[3] = v.w;
}

ZINC_DEVICE void read_four(const float* p, float (&values)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  values[0] = v.x;
  values[1] = v.y;
  values[2] = v.z;
  values[3] = v.w;
}

// One value per token of the thread.
template <class Shape, class T>
ZINC_DEVICE void read_tokens(const T* values, T (&lower)[4], T (&upper)[4]) {
  read_four(values + Shape::token(0), lower);
  read_four(values + Shape::token(4), upper);
}

// Integer sums are counted from the number whose bits are those of 1.5 * 2^23: the sum's bits are then those of
// 1.5 * 2^23 plus the sum, and a subtraction turns it into f32, exactly and at four times the rate of a conversion.
constexpr uint32_t sum_origin = 0x4B400000u;
constexpr uint32_t largest_sum = 1u << 22;
static_assert(32 * 128 * 128 < largest_sum, "a block's sum keeps the exponent");

ZINC_DEVICE float exact_float(int32_t counted) {
  return __uint_as_float(static_cast<uint32_t>(counted)) - __uint_as_float(sum_origin);
}

// Calls take(t, r, dot) for the thread's tokens and rows: the sum of the products over the columns of scale s, counted
// from sum_origin.
template <class Format, class Shape, unsigned matrices, class Take>
ZINC_DEVICE void dots_int8(const Int8Tile<Format, Shape, matrices>& tile, unsigned i, unsigned s, Take take) {
  constexpr unsigned scale_words = Int8Tile<Format, Shape, matrices>::scale_words;
  if constexpr (Shape::form == DotForm::mma) {
    // Row group + 8 h of product (p, t) is row 4 group + 2 p + h of the warp, and token group is token 4 group + t: so
    // a lane reads 16 bytes at a time, and its sums belong to four neighbouring rows and eight neighbouring tokens.
    constexpr unsigned lane_words = scale_words / 4;
    const unsigned first_word = s * scale_words + lane_id() % 4 * lane_words;
    uint32_t a[lane_words][4];
    uint32_t b[lane_words][4];
#pragma unroll
    for (unsigned j = 0; j < lane_words; ++j) {
      read_four(&tile.a[i][first_word + j][Shape::first_row()], a[j]);
      read_four(&tile.b[first_word + j][Shape::warp_token() + lane_id() / 4 * 4], b[j]);
    }
#pragma unroll
    for (unsigned t = 0; t < 4; ++t) {
      uint32_t tokens[lane_words];
#pragma unroll
      for (unsigned j = 0; j < lane_words; ++j) tokens[j] = b[j][t];
#pragma unroll
      for (unsigned p = 0; p < 2; ++p) {
        uint32_t rows[2 * lane_words];
#pragma unroll
        for (unsigned j = 0; j < lane_words; ++j) {
          rows[2 * j] = a[j][2 * p];
          rows[2 * j + 1] = a[j][2 * p + 1];
        }
        int32_t sums[4] = {sum_origin, sum_origin, sum_origin, sum_origin};
        mma_int8<Format::scale_columns>(sums, rows, tokens);
#pragma unroll
        for (unsigned e = 0; e < 2; ++e) {
#pragma unroll
          for (unsigned h = 0; h < 2; ++h) take(4 * e + t, 2 * p + h, sums[2 * h + e]);
        }
      }
    }
  } else {
    int32_t dots[Shape::thread_tokens][Shape::thread_rows];
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) dots[t][r] = sum_origin;
    }
#pragma unroll
    for (unsigned w = s * scale_words; w < (s + 1) * scale_words; ++w) {
      uint32_t a[4];
      uint32_t b[2][4];
      read_four(&tile.a[i][w][Shape::first_row()], a);
      read_tokens<Shape>(tile.b[w], b[0], b[1]);
#pragma unroll
      for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
          dots[t][r] = __dp4a(static_cast<int32_t>(a[r]), static_cast<int32_t>(b[t / 4][t % 4]), dots[t][r]);
        }
      }
    }
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) take(t, r, dots[t][r]);
    }
  }
}

// Adds the products of the staged block with matrix i.
template <class Format, class Shape, unsigned matrices>
ZINC_DEVICE void add_int8(float (&sum)[Shape::thread_tokens][Shape::thread_rows],
                          const Int8Tile<Format, Shape, matrices>& tile, unsigned i) {
  const unsigned row = Shape::first_row();
  float b_scale[2][4];
  float b_sum[2][4];
  float a_minimum[4];
  read_tokens<Shape>(tile.b_scale, b_scale[0], b_scale[1]);
  if constexpr (Format::has_minimum) {
    read_tokens<Shape>(tile.b_sum, b_sum[0], b_sum[1]);
    read_four(&tile.a_minimum[i][row], a_minimum);
  }
#pragma unroll
  for (unsigned s = 0; s < tile.scales; ++s) {
    float a_scale[4];
    read_four(&tile.a_scale[i][s][row], a_scale);
    dots_int8(tile, i, s, [&](unsigned t, unsigned r, int32_t dot) {
      sum[t][r] = fmaf(b_scale[t / 4][t % 4] * a_scale[r], exact_float(dot), sum[t][r]);
      if constexpr (Format::has_minimum) sum[t][r] = fmaf(-a_minimum[r], b_sum[t / 4][t % 4], sum[t][r]);
    });
  }
}

template <bool wide, class Scales, unsigned matrices, class Format, class Shape, class Finish>
ZINC_DEVICE void int8_tiles(Int8Tile<Format, Shape, matrices>& tile, const uint8_t* const (&matrix)[matrices],
                            const Int8Tokens& x, uint32_t m, uint32_t k, Finish finish) {
  static_assert(!Format::has_minimum || Format::scale_columns == Shape::step);
  for_tiles<Shape>(m, x.count, [&](uint32_t row, uint32_t token) {
    float sum[matrices][Shape::thread_tokens][Shape::thread_rows] = {};
    Int8Staged<Scales, matrices, Format, Shape> staged;
    staged.template load<wide>(matrix, m, k, row, x, token, 0);
    for (uint32_t block = 0; block < k / Shape::step; ++block) {
      __syncthreads();  // the last readers of the tile are done
      staged.store(tile);
      __syncthreads();
      // In flight while the products are formed.
      staged.template load<wide>(matrix, m, k, row, x, token, block + 1);
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

// Stores the rows before m of the thread's rows at `out`, whose first is `row`.
template <class Shape>
ZINC_DEVICE void store_rows(float* out, uint32_t row, uint32_t m, const float (&values)[Shape::thread_rows]) {
  if (row + Shape::thread_rows <= m && is_aligned(out, sizeof(float4))) {
    *reinterpret_cast<float4*>(out) = make_float4(values[0], values[1], values[2], values[3]);
    return;
  }
#pragma unroll
  for (unsigned r = 0; r < Shape::thread_rows; ++r) {
    if (row + r < m) out[r] = values[r];
  }
}

// d[t * stride_d + r] = sum of row r times token t.
template <class Format, class Shape, class Scales, class Push>
ZINC_DEVICE void mul_mm_int8(const uint8_t* a, const uint32_t* b_packed, const float* b_scales, float* d,
                             const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_int8_with<Format, Shape, Scales>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][1]) {
        if (token >= p.n) return;
        float v[Shape::thread_rows];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) v[r] = sums[r][0];
        store_rows<Shape>(d + p.d_offset + uint64_t{token} * p.stride_d + row, row, p.m, v);
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
        float v[Shape::thread_rows];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) v[r] = silu(sums[r][0]) * sums[r][1];
        store_rows<Shape>(d + p.d_offset + uint64_t{token} * p.stride_d + row, row, p.m, v);
      });
}

// The silu of the requantizing kernels: their contract cuts it off beyond 8.
ZINC_DEVICE float silu_cut(float x) {
  constexpr float cutoff = 8.0f;
  return x > cutoff ? x : x < -cutoff ? 0.0f : silu(x);
}

// Quantizes 32 neighbouring rows of a token, held four each by eight lanes, `stride` apart, in row order: the word of
// this lane's four quants, and the scale and the integer sum of all in every lane.
template <unsigned stride>
struct QuantizedRows {
  uint32_t word;
  float scale;
  int32_t sum;

  explicit ZINC_DEVICE QuantizedRows(const float (&v)[4]) {
    constexpr unsigned lanes = 8;
    constexpr float top = 127.0f;
    const float largest =
        warp_max<lanes, stride>(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))));
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
    sum = warp_sum<lanes, stride>(sum);
  }
};

// silu_cut(gate) * up, quantized per token in blocks of 32 rows. m is a multiple of 32; d_packed_offset counts words,
// d_scale_offset scale entries.
template <class Format, class Shape, class OutScales, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu_requantized(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                                const float* b_scales, uint32_t* d_packed, float* d_scales,
                                                const Push& p) {
  static_assert(Shape::rows % 32 == 0 && Shape::thread_rows == 4, "eight lanes hold a block of 32 rows");
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Shape, ScaleSumPairs>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][2]) {
        float v[Shape::thread_rows];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) v[r] = silu_cut(sums[r][0]) * sums[r][1];
        const QuantizedRows<Shape::row_lane_stride> quantized(v);
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
