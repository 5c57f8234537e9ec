// Matrix-matrix products of quantized matrices with tokens that are quantized to int8 in blocks of 32 columns: exact
// integer sums per scale, f32 between them.
#pragma once

#include "zinc/activation.cuh"
#include "zinc/async_copy.cuh"
#include "zinc/mma.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/quant/quants.cuh"

namespace zinc {

// How the integer sums are formed. Both forms give the same bits: the sums are exact, and what follows is one code.
enum class DotForm {
  dp4a,  // four products per thread and instruction
  mma,   // 16 rows of 8 tokens per warp and instruction
};
constexpr DotForm native_dot_form = ZINC_ARCH >= 80 ? DotForm::mma : DotForm::dp4a;

// A block computes `rows` rows of each matrix for `tokens` tokens, `step` columns at a time; a thread `row_fours` times
// four neighbouring rows for eight neighbouring tokens. In the mma form a warp has 32 * row_fours rows of 32 tokens.
template <unsigned rows_, unsigned tokens_, unsigned threads_, unsigned step_, unsigned row_fours_,
          DotForm form_ = native_dot_form>
struct Int8Shape {
  static constexpr DotForm form = form_;
  static constexpr bool by_warps = form == DotForm::mma;
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned step = step_;
  static constexpr unsigned row_fours = row_fours_;
  static constexpr unsigned thread_rows = 4;
  static constexpr unsigned thread_tokens = 8;
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned blocks = step / block_columns;
  static constexpr unsigned warp_rows = 32 * row_fours;
  static constexpr unsigned warp_tokens = 32;
  static constexpr unsigned lanes_x = rows / (thread_rows * row_fours);
  static_assert(rows % warp_rows == 0 && tokens % warp_tokens == 0 && step % block_columns == 0);
  static_assert(rows / warp_rows * (tokens / warp_tokens) * warp_size == threads, "every output has one thread");

  // How far apart the lanes are that hold neighbouring fours of a token.
  static constexpr unsigned row_lane_stride = by_warps ? 4 : 1;

  // The first row of four number i.
  static ZINC_DEVICE unsigned first_row(unsigned i) {
    return by_warps ? warp_row() + i * 32 + lane_id() / 4 * 4 : (i * lanes_x + threadIdx.x % lanes_x) * thread_rows;
  }
  // The first row and token of the warp.
  static ZINC_DEVICE unsigned warp_row() { return warp_id() % (rows / warp_rows) * warp_rows; }
  static ZINC_DEVICE unsigned warp_token() { return warp_id() / (rows / warp_rows) * warp_tokens; }
  static ZINC_DEVICE unsigned token(unsigned i) {
    return (by_warps ? warp_token() + lane_id() % 4 * thread_tokens : threadIdx.x / lanes_x * thread_tokens) + i;
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

// A step of rows and tokens in shared memory, in words of four columns.
template <class Format_, class Shape_, unsigned matrices>
struct Int8Tile {
  using Format = Format_;
  using Shape = Shape_;
  static constexpr unsigned block_words = Shape::block_columns / 4;
  static constexpr unsigned subs = Shape::block_columns / Format::scale_columns;  // scales of a block
  // 64 bytes are added per eight tokens, so that the tokens of a lane's neighbours lie in other banks.
  static constexpr unsigned token_words = 8 * block_words + 16;  // of eight tokens
  static_assert(Shape::rows % 32 == 0 && Shape::tokens % 32 == 0);

  // Fragments of 16 rows and a block: lane 4 group + part has words of rows group and group + 8 in turn, first (word 0)
  // those that are first in the instruction.
  alignas(16) uint32_t a[matrices][Shape::blocks][Shape::rows / 16][warp_size][4];
  alignas(16) uint32_t b[Shape::blocks][Shape::tokens / 8][token_words];
  alignas(16) float a_scale[matrices][Shape::blocks * subs][Shape::rows];
  alignas(16) float a_minimum[matrices][Format::has_minimum ? Shape::blocks : 1][Format::has_minimum ? Shape::rows : 4];
  alignas(16) float b_scale[Shape::blocks][Shape::tokens];
  alignas(16) float b_sum[Format::has_minimum ? Shape::blocks : 1][Format::has_minimum ? Shape::tokens : 4];

  // Word `word` of `row` in a block of matrix i. Row group + 8 h of fragment f is row 32 (f / 2) + 4 group + 2 (f % 2)
  // + h, so that a lane's sums belong to four neighbouring rows. The place of a lane is permuted so that threads that
  // store neighbouring rows meet in fewer banks.
  ZINC_DEVICE uint32_t* row_word(unsigned i, unsigned block, unsigned row, unsigned word) {
    const unsigned group = row % 32 / 4;
    const unsigned part = subs == 1 ? word / 2 : word % 4;
    const unsigned j = subs == 1 ? word % 2 : word / 4;
    return &a[i][block][row / 32 * 2 + row % 4 / 2][place(group, part)][2 * j + row % 2];
  }
  static ZINC_DEVICE unsigned place(unsigned group, unsigned part) { return group * 4 + (part ^ (group / 2 % 4)); }

  // The words 4 half .. 4 half + 3 of a token in a block.
  ZINC_DEVICE uint32_t* token_half(unsigned block, unsigned token, unsigned half) {
    return &b[block][token / 8][token % 8 * block_words + (half ^ (token / 16 % 2)) * 4];
  }
  ZINC_DEVICE const uint32_t* token_half(unsigned block, unsigned token, unsigned half) const {
    return const_cast<Int8Tile*>(this)->token_half(block, token, half);
  }
};

// A thread's part of the rows of a step, on its way through the registers: quants become signed bytes, and scales
// floats. Rows past the end are replaced by the last one, columns past the end by zeros.
template <bool wide, class Format, class Shape, unsigned matrices>
struct Int8Rows {
  static constexpr unsigned step_units = Shape::step / unit_columns;
  static constexpr unsigned all = matrices * Shape::rows * step_units;
  static constexpr unsigned count = all / Shape::threads;
  static constexpr unsigned block_units = Format::block_columns / unit_columns;
  static_assert(count * Shape::threads == all, "every thread stages equally many units");
  static_assert(Shape::step % (2 * Format::run_distance) == 0, "both runs of a unit lie in the step");

  typename Format::Unit unit[count];
  uint32_t block;  // the step's first block of 32 columns

  // Neighbouring threads have neighbouring units of a row.
  static ZINC_DEVICE unsigned place(unsigned i) { return threadIdx.x % step_units; }
  static ZINC_DEVICE unsigned row(unsigned i) { return (i * Shape::threads + threadIdx.x) / step_units % Shape::rows; }
  static ZINC_DEVICE unsigned matrix(unsigned i) {
    return matrices == 1 ? 0 : (i * Shape::threads + threadIdx.x) / (step_units * Shape::rows);
  }

  ZINC_DEVICE void load(const uint8_t* const (&from)[matrices], uint32_t m, uint32_t k, uint32_t first_row,
                        uint32_t step) {
    static_assert(Shape::threads % step_units == 0);
    block = step * step_units;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      uint32_t at = step * step_units + place(i);
      if constexpr (Format::block_columns % Shape::step != 0) at = min(at, k / unit_columns - 1);
      const uint8_t* base = from[0];
      if constexpr (matrices == 2) base = matrix(i) == 0 ? from[0] : from[1];
      const uint8_t* const line = base + uint64_t{min(first_row + row(i), m - 1)} * row_bytes<Format>(k);
      unit[i] = Format::template load<wide>(line + uint64_t{at / block_units} * Format::block_bytes, at % block_units);
    }
  }

  ZINC_DEVICE void store(Int8Tile<Format, Shape, matrices>& tile, uint32_t k) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      constexpr unsigned run_bit = Format::run_distance / run_columns;
      const unsigned group = place(i) / run_bit * 2 * run_bit + place(i) % run_bit;  // of 16 columns
      const auto scales = unit[i].scales();
      bool present = true;
      if constexpr (Format::block_columns % Shape::step != 0) present = block + place(i) < k / unit_columns;
#pragma unroll
      for (unsigned run = 0; run < 2; ++run) {
        const unsigned column = (group + run * run_bit) * run_columns;
#pragma unroll
        for (unsigned w = 0; w < run_words; ++w) {
          *tile.row_word(matrix(i), column / Shape::block_columns, row(i), column / 4 % 8 + w) =
              Format::Quants::to_int8(unit[i].word(run, w));
        }
        // Where 32 columns share a scale, one of their two runs stores it.
        if (column % Format::scale_columns == 0) {
          const unsigned scale = column / Format::scale_columns;
          tile.a_scale[matrix(i)][scale][row(i)] = present ? scales.scale[run] : 0.0f;
          if constexpr (Format::has_minimum) {
            tile.a_minimum[matrix(i)][scale][row(i)] = present ? scales.minimum[run] : 0.0f;
          }
        }
      }
    }
  }
};

// Starts the copies of the tokens of a step; what lies past the end becomes zero. `wide` says that tokens are 16-byte
// aligned, which helps where copies need no registers.
template <class Scales, class Format, class Shape, unsigned matrices>
ZINC_DEVICE void copy_tokens(Int8Tile<Format, Shape, matrices>& tile, const Int8Tokens& x, bool wide, uint32_t k,
                             uint32_t first_token, uint32_t step) {
  static_assert(!Format::has_minimum || Scales::floats == 2, "minimums need the sums of the quants");
  // Neighbouring threads copy the 16-byte halves of the blocks of a token.
  constexpr unsigned halves = Shape::blocks * 2;
  constexpr unsigned tokens_at_once = Shape::threads / halves;
  const unsigned half = threadIdx.x % halves;
  const uint32_t left = x.count - first_token;
  const uint32_t left_blocks = k / Shape::block_columns - step * Shape::blocks;
  const auto present = [&](unsigned token, unsigned block) {
    return token < left && (Format::block_columns % Shape::step == 0 || block < left_blocks);
  };
#pragma unroll
  for (unsigned t = 0; t < Shape::tokens; t += tokens_at_once) {
    const unsigned token = t + threadIdx.x / halves;
    const bool there = present(token, half / 2);
    const uint64_t word = (uint64_t{first_token} + token) * x.packed_pitch + (step * halves + half) * 4;
    const uint32_t* const from = x.packed + (there ? word : 0);
    uint32_t* const to = tile.token_half(half / 2, token, half % 2);
    if (wide && Shape::by_warps) {
      async_copy_or_zero<16>(shared_place(to), from, there);
    } else {
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) async_copy_or_zero<4>(shared_place(to + w), from + w, there);
    }
  }
  constexpr unsigned scales = Shape::tokens * Shape::blocks;
  static_assert(scales % Shape::threads == 0);
#pragma unroll
  for (unsigned i = 0; i < scales; i += Shape::threads) {
    const unsigned block = threadIdx.x % Shape::blocks;
    const unsigned token = (i + threadIdx.x) / Shape::blocks;
    const bool there = present(token, block);
    const uint64_t entry = (uint64_t{first_token} + token) * x.scale_pitch + step * Shape::blocks + block;
    const float* const from = x.scales + (there ? entry * Scales::floats : 0);
    async_copy_or_zero<4>(shared_place(&tile.b_scale[block][token]), from, there);
    if constexpr (Format::has_minimum) async_copy_or_zero<4>(shared_place(&tile.b_sum[block][token]), from + 1, there);
  }
  async_commit();
}

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
ZINC_DEVICE void read_tokens(const T* values, T (&tokens)[2][4]) {
  read_four(values + Shape::token(0), tokens[0]);
  read_four(values + Shape::token(4), tokens[1]);
}

// Integer sums are counted from the number whose bits are those of 1.5 * 2^23: the sum's bits are then those of
// 1.5 * 2^23 plus the sum, and a subtraction turns it into f32, exactly and at four times the rate of a conversion.
constexpr uint32_t sum_origin = 0x4B400000u;
constexpr uint32_t largest_sum = 1u << 22;
static_assert(32 * 128 * 128 < largest_sum, "a block's sum keeps the exponent");

ZINC_DEVICE float exact_float(int32_t counted) {
  return __uint_as_float(static_cast<uint32_t>(counted)) - __uint_as_float(sum_origin);
}

// The two words of a token that part `part` of a fragment multiplies: neighbours, or of neighbouring scales.
template <unsigned subs, class Tile>
ZINC_DEVICE void read_token_words(const Tile& tile, unsigned block, unsigned token, unsigned part,
                                  uint32_t (&words)[2]) {
  if constexpr (subs == 1) {
    const uint2 both = *reinterpret_cast<const uint2*>(tile.token_half(block, token, part / 2) + part % 2 * 2);
    words[0] = both.x;
    words[1] = both.y;
  } else {
    words[0] = tile.token_half(block, token, 0)[part];
    words[1] = tile.token_half(block, token, 1)[part];
  }
}

// Calls take(t, r, dots) for the thread's tokens and the rows of four number `four`: the sums of the products over the
// columns of each scale of block `block` of the step, counted from sum_origin.
template <class Format, class Shape, unsigned matrices, class Take>
ZINC_DEVICE void dots_int8(const Int8Tile<Format, Shape, matrices>& tile, const uint32_t (&tokens)[4][2], unsigned i,
                           unsigned block, unsigned four, Take take) {
  constexpr unsigned subs = Int8Tile<Format, Shape, matrices>::subs;
  if constexpr (Shape::form == DotForm::mma) {
    uint32_t a[2][4];
#pragma unroll
    for (unsigned p = 0; p < 2; ++p) {
      read_four(tile.a[i][block][Shape::warp_row() / 16 + four * 2 + p][tile.place(lane_id() / 4, lane_id() % 4)],
                a[p]);
    }
#pragma unroll
    for (unsigned t = 0; t < 4; ++t) {
#pragma unroll
      for (unsigned p = 0; p < 2; ++p) {
        int32_t sums[subs][4];
#pragma unroll
        for (unsigned s = 0; s < subs; ++s) {
#pragma unroll
          for (unsigned e = 0; e < 4; ++e) sums[s][e] = sum_origin;
        }
        if constexpr (subs == 1) {
          mma_int8<32>(sums[0], a[p], tokens[t]);
        } else {
          mma_int8<16>(sums[0], {a[p][0], a[p][1]}, {tokens[t][0]});
          mma_int8<16>(sums[1], {a[p][2], a[p][3]}, {tokens[t][1]});
        }
#pragma unroll
        for (unsigned e = 0; e < 2; ++e) {
#pragma unroll
          for (unsigned h = 0; h < 2; ++h) {
            int32_t dots[subs];
#pragma unroll
            for (unsigned s = 0; s < subs; ++s) dots[s] = sums[s][2 * h + e];
            take(2 * t + e, 2 * p + h, dots);
          }
        }
      }
    }
  } else {
    int32_t dots[Shape::thread_tokens][Shape::thread_rows][subs];
#pragma unroll
    for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
#pragma unroll
      for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
        for (unsigned s = 0; s < subs; ++s) dots[t][r][s] = sum_origin;
      }
    }
    const unsigned row = Shape::first_row(four);
    const unsigned group = row % 32 / 4;
#pragma unroll
    for (unsigned i4 = 0; i4 < 4; ++i4) {
      // In the order of their places, which need no address of their own.
      const unsigned part = i4 ^ group / 2 % 4;
      uint32_t a[2][4];
#pragma unroll
      for (unsigned f = 0; f < 2; ++f) read_four(tile.a[i][block][row / 32 * 2 + f][group * 4 + i4], a[f]);
#pragma unroll
      for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
        uint32_t b[2];
        read_token_words<subs>(tile, block, Shape::token(t), part, b);
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
          for (unsigned j = 0; j < 2; ++j) {
            int32_t& dot = dots[t][r][j * subs / 2];
            dot = __dp4a(static_cast<int32_t>(a[r / 2][2 * j + r % 2]), static_cast<int32_t>(b[j]), dot);
          }
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

template <class Shape, unsigned matrices>
using Int8Sums = float[matrices][Shape::row_fours][Shape::thread_tokens][Shape::thread_rows];

// Adds the products of the staged step.
template <class Format, class Shape, unsigned matrices>
ZINC_DEVICE void add_int8(Int8Sums<Shape, matrices>& sum, const Int8Tile<Format, Shape, matrices>& tile) {
  constexpr unsigned subs = Int8Tile<Format, Shape, matrices>::subs;
#pragma unroll 1
  for (unsigned block = 0; block < Shape::blocks; ++block) {
    uint32_t tokens[4][2];
    if constexpr (Shape::form == DotForm::mma) {
      // Column c of the instruction's tile t is the lane's token 2 t + c % 2, of the lanes that are part c / 2.
      const unsigned group = lane_id() / 4;
#pragma unroll
      for (unsigned t = 0; t < 4; ++t) {
        const unsigned token = Shape::warp_token() + group / 2 * 8 + 2 * t + group % 2;
        read_token_words<subs>(tile, block, token, lane_id() % 4, tokens[t]);
      }
    }
    float b_scale[2][4];
    float b_sum[2][4];
    if constexpr (Shape::by_warps) {
      read_tokens<Shape>(tile.b_scale[block], b_scale);
      if constexpr (Format::has_minimum) read_tokens<Shape>(tile.b_sum[block], b_sum);
    }
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
#pragma unroll
      for (unsigned four = 0; four < Shape::row_fours; ++four) {
        float a_scale[subs][4];
        float a_minimum[4];
#pragma unroll
        for (unsigned s = 0; s < subs; ++s) {
          read_four(&tile.a_scale[i][block * subs + s][Shape::first_row(four)], a_scale[s]);
        }
        if constexpr (Format::has_minimum) read_four(&tile.a_minimum[i][block][Shape::first_row(four)], a_minimum);
        dots_int8(tile, tokens, i, block, four, [&](unsigned t, unsigned r, const int32_t (&dots)[subs]) {
          float& mine = sum[i][four][t][r];
          // The dp4a form has no registers for the scales of all its tokens.
          const float scale = Shape::by_warps ? b_scale[t / 4][t % 4] : tile.b_scale[block][Shape::token(t)];
          if constexpr (subs == 1) {
            mine = fmaf(scale * a_scale[0][r], exact_float(dots[0]), mine);
          } else {
            const float both = fmaf(a_scale[1][r], exact_float(dots[1]), a_scale[0][r] * exact_float(dots[0]));
            mine = fmaf(scale, both, mine);
          }
          if constexpr (Format::has_minimum) {
            const float total = Shape::by_warps ? b_sum[t / 4][t % 4] : tile.b_sum[block][Shape::token(t)];
            mine = fmaf(-a_minimum[r], total, mine);
          }
        });
      }
    }
  }
}

template <bool wide, class Scales, unsigned matrices, class Format, class Shape, class Finish>
ZINC_DEVICE void int8_tiles(Int8Tile<Format, Shape, matrices>* tile, const uint8_t* const (&matrix)[matrices],
                            const Int8Tokens& x, uint32_t m, uint32_t k, Finish finish) {
  static_assert(!Format::has_minimum || Format::scale_columns == Shape::block_columns);
  const uint32_t steps = (k + Shape::step - 1) / Shape::step;
  const bool wide_tokens = is_aligned(x.packed, 16) && x.packed_pitch % 4 == 0;
  for_tiles<Shape::rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t token) {
    Int8Sums<Shape, matrices> sum = {};
    Int8Rows<wide, Format, Shape, matrices> rows;
    rows.load(matrix, m, k, row, 0);
    __syncthreads();  // the last readers of the tiles are done
    copy_tokens<Scales>(tile[0], x, wide_tokens, k, token, 0);
    rows.store(tile[0], k);
    for (uint32_t step = 0; step < steps; ++step) {
      async_wait<0>();
      __syncthreads();  // this step is there, and the readers of the one before it are done
      const bool more = step + 1 < steps;
      // In flight while the products are formed; the dp4a form has no registers for it.
      if (more) copy_tokens<Scales>(tile[(step + 1) % 2], x, wide_tokens, k, token, step + 1);
      if (more && Shape::by_warps) rows.load(matrix, m, k, row, step + 1);
      add_int8(sum, tile[step % 2]);
      if (more && !Shape::by_warps) rows.load(matrix, m, k, row, step + 1);
      if (more) rows.store(tile[(step + 1) % 2], k);
    }
#pragma unroll
    for (unsigned four = 0; four < Shape::row_fours; ++four) {
#pragma unroll
      for (unsigned t = 0; t < Shape::thread_tokens; ++t) {
        float sums[Shape::thread_rows][matrices];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) {
#pragma unroll
          for (unsigned i = 0; i < matrices; ++i) sums[r][i] = sum[i][four][t][r];
        }
        finish(row + Shape::first_row(four), token + Shape::token(t), sums);
      }
    }
  });
}

// For every tile, thread and token of the thread: finish(row, token, sums[r][matrix]) with the sums of the rows row +
// r, also past the end of the rows or tokens. All lanes of a warp call it together. a_offset counts bytes. `bytes` is
// the size of the dynamic shared memory.
template <class Format, class Shape, class Scales, unsigned bytes, unsigned matrices, class Push, class Finish>
ZINC_DEVICE void mul_mm_int8_with(const uint8_t* const (&matrix)[matrices], const uint32_t* b_packed,
                                  const float* b_scales, const Push& p, Finish finish) {
  using Tile = Int8Tile<Format, Shape, matrices>;
  static_assert(2 * sizeof(Tile) <= bytes, "two steps are in shared memory");
  ZINC_DYNAMIC_SHARED(Tile, tile);
  const Int8Tokens x{b_packed, b_scales, p.stride_b_packed, p.stride_b_scale, p.n};
  if constexpr (Format::wide_alignment > Format::alignment && Shape::by_warps) {
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
template <class Format, class Shape, class Scales, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8(const uint8_t* a, const uint32_t* b_packed, const float* b_scales, float* d,
                             const Push& p) {
  const uint8_t* const matrix[] = {a + p.a_offset};
  mul_mm_int8_with<Format, Shape, Scales, bytes>(
      matrix, b_packed, b_scales, p, [=](uint32_t row, uint32_t token, const float (&sums)[Shape::thread_rows][1]) {
        if (token >= p.n) return;
        float v[Shape::thread_rows];
#pragma unroll
        for (unsigned r = 0; r < Shape::thread_rows; ++r) v[r] = sums[r][0];
        store_rows<Shape>(d + p.d_offset + uint64_t{token} * p.stride_d + row, row, p.m, v);
      });
}

// d[t * stride_d + r] = silu(gate sum) * up sum.
template <class Format, class Shape, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                    const float* b_scales, float* d, const Push& p) {
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Shape, ScaleSumPairs, bytes>(
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
template <class Format, class Shape, class OutScales, unsigned bytes, class Push>
ZINC_DEVICE void mul_mm_int8_swiglu_requantized(const uint8_t* gate, const uint8_t* up, const uint32_t* b_packed,
                                                const float* b_scales, uint32_t* d_packed, float* d_scales,
                                                const Push& p) {
  static_assert(Shape::rows % 32 == 0 && Shape::thread_rows == 4, "eight lanes hold a block of 32 rows");
  const uint8_t* const matrix[] = {gate + p.a_offset, up + p.a_offset};
  mul_mm_int8_with<Format, Shape, ScaleSumPairs, bytes>(
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
