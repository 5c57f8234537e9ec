// Tiles of matrix-matrix products of quantized matrices with int8 tokens by the tensor cores: exact integer sums, f32
// between them. Raw rows are copied to shared memory 256 columns at a time, tokens pass through the registers 64
// columns at a time. A row becomes an operand of the instruction either in the registers of the warp that multiplies
// it, or, where its bytes are not aligned, once for the block in shared memory.
#pragma once

#include "zinc/mma.cuh"
#include "zinc/mul_mm_int8_exact.cuh"
#include "zinc/mul_mm_rows.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/quant/q4_k.cuh"
#include "zinc/quant/q5_k.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/q8_0.cuh"

namespace zinc {

// A warp computes 16 * row_tiles of the block's `rows` rows, of `matrices` matrices together, for 8 * token_tiles of
// its tokens.
template <unsigned rows_, unsigned tokens_, unsigned threads_, unsigned matrices_>
struct MmaShape {
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned matrices = matrices_;
  static constexpr unsigned matrix_rows = rows / matrices;
  static constexpr unsigned warps = threads / warp_size;
  static constexpr unsigned warp_tiles = rows / 16 * (tokens / 8) / warps;
  static constexpr unsigned row_tiles = warp_tiles >= 12 ? 4 : 2;
  static constexpr unsigned token_tiles = warp_tiles / row_tiles;
  static constexpr unsigned warp_rows = 16 * row_tiles;
  static constexpr unsigned warp_tokens = 8 * token_tiles;
  static constexpr unsigned thread_rows = 4;
  static_assert(rows % warp_rows == 0 && tokens % warp_tokens == 0);
  static_assert(row_tiles % (2 * matrices) == 0 && warp_tiles * warps * 16 * 8 == rows * tokens);

  static ZINC_DEVICE unsigned warp_row() { return warp_id() % (rows / warp_rows) * warp_rows; }
  static ZINC_DEVICE unsigned warp_token() { return warp_id() / (rows / warp_rows) * warp_tokens; }
  // A warp's rows are divided among the matrices, 32 by 32: which matrix, and which of its rows in the block, row s of
  // the shared memory is. Row group + 8 h of the instruction's tile r is row 16 r + 2 group + h there, and row 4 group
  // + 2 (r % 2) + h of its 32: a lane's rows are neighbours, and rows that are read together meet in no bank.
  static constexpr unsigned share = warp_rows / matrices;
  static ZINC_DEVICE unsigned matrix(unsigned s) { return s % warp_rows / share; }
  static ZINC_DEVICE unsigned matrix_row(unsigned s) {
    return s / warp_rows * share + s % share / 32 * 32 + s % 16 / 2 * 4 + s / 16 % 2 * 2 + s % 2;
  }
};

// A warp's sums, in the layout of the instruction.
template <class Shape>
using MmaSums = float[Shape::token_tiles][Shape::row_tiles][4];

// The units that the sums of a chunk's rows are counted in, and their ratios to those of the chunk before; two
// neighbouring rows each.
template <class Shape>
struct MmaUnits {
  alignas(16) float2 unit[Shape::rows / 2];
  alignas(16) float2 ratio[Shape::rows / 2];

  ZINC_DEVICE void store(unsigned s, const BlockUnit& of, const MmaUnits* before) {
    reinterpret_cast<float*>(unit)[s] = of.unit;
    reinterpret_cast<float*>(ratio)[s] =
        before == nullptr ? 1.0f : of.ratio(reinterpret_cast<const float*>(before->unit)[s]);
  }
};
template <bool present, class Shape>
struct MmaChunkUnits {
  MmaUnits<Shape> units[2];
};
template <class Shape>
struct MmaChunkUnits<false, Shape> {};

template <class Shape>
ZINC_DEVICE void scale_rows(MmaSums<Shape>& sum, const float2 (&by)[Shape::rows / 2], unsigned pair) {
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
    const float2 factor = by[pair + 8 * r];
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) sum[t][r][e] *= e / 2 == 0 ? factor.x : factor.y;
    }
  }
}

// How a token's 32 columns lie in the operand of the instruction.
enum class TokenForm {
  halves,          // binary16; lane 4 group + part has columns 8 part .. 8 part + 7 of token group
  halves_by_half,  // binary16; columns 4 part .. 4 part + 3 of either 16
  bytes,           // columns 8 part .. 8 part + 7
};

// The tokens of a step. The lanes' places are permuted, so that those who store meet in no bank. Binary16 numbers of
// four columns are in the order 0 2 1 3.
template <TokenForm form, class Shape>
struct TokenStep {
  static constexpr unsigned lane_words = form == TokenForm::bytes ? 2 : 4;
  alignas(16) uint32_t b[step_blocks][Shape::tokens / 8][warp_size][lane_words];

  // What the lanes of the second block are exchanged by.
  static constexpr unsigned block_exchange = form == TokenForm::bytes ? 8 : form == TokenForm::halves ? 1 : 2;
  static ZINC_DEVICE unsigned place(unsigned block, unsigned group, unsigned part) {
    const unsigned lane = (group * 4 + part) ^ (block * block_exchange);
    return form == TokenForm::halves_by_half ? lane ^ (group / 2 % 2) : lane;
  }
};

// Half of a thread's tokens of a step on their way through the registers. `wide` says that tokens are 16-byte aligned
// and columns whole steps.
template <bool wide, TokenForm form, class Shape>
struct TokenLoad {
  static constexpr unsigned pieces = step_columns / 16;
  static constexpr unsigned at_once = Shape::threads / pieces;
  static constexpr unsigned rounds = (Shape::tokens + at_once - 1) / at_once;
  static constexpr unsigned count = (rounds + 1) / 2;
  static_assert(Shape::threads % pieces == 0 && at_once % 8 == 0);
  using Step = TokenStep<form, Shape>;

  const Int8Tokens& x;
  const uint32_t k;
  uint32_t piece;  // the thread's first, counted from token 0
  uint32_t place;  // of its words in a step
  uint4 quants[count];

  ZINC_DEVICE TokenLoad(const Int8Tokens& x, uint32_t k, uint32_t first_token)
      : x(x), k(k), piece(first_token * pieces + threadIdx.x) {
    const unsigned block = threadIdx.x % pieces / 2;
    const unsigned side = threadIdx.x % 2;
    const unsigned token = threadIdx.x / pieces;
    const unsigned part = form == TokenForm::halves_by_half ? 0 : 2 * side;
    place = ((block * (Shape::tokens / 8) + token / 8) * warp_size + Step::place(block, token % 8, part)) *
                Step::lane_words +
            (form == TokenForm::halves_by_half ? 2 * side : 0);
    keep(piece);
    keep(place);
  }

  ZINC_DEVICE void load(uint32_t step, unsigned half) {
    uint32_t mine = piece;
    if constexpr (form == TokenForm::halves_by_half) forget(mine);  // there are no registers to keep its parts
    uint32_t column = step * step_columns + mine % pieces * 16;
    if (!wide) column = min(column, k - 16);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t token = min(mine / pieces + (half * count + i) * at_once, x.count - 1);
      const uint32_t* const p = x.packed + (token * x.packed_pitch + column / 4);
      quants[i] = wide ? __ldg(reinterpret_cast<const uint4*>(p))
                       : make_uint4(__ldg(p), __ldg(p + 1), __ldg(p + 2), __ldg(p + 3));
    }
  }

  ZINC_DEVICE void store(Step& to, unsigned half) const {
    uint32_t* const words = &to.b[0][0][0][0] + place + half * (count * (at_once / 8) * warp_size * Step::lane_words);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      if (2 * count * at_once != Shape::tokens && (half * count + i) * at_once + threadIdx.x / pieces >= Shape::tokens)
        break;
      uint32_t* const at = words + i * (at_once / 8) * warp_size * Step::lane_words;
      if constexpr (form == TokenForm::bytes) {
        *reinterpret_cast<uint4*>(at) = quants[i];
      } else {
        const uint2 halves[4] = {to_halves(quants[i].x), to_halves(quants[i].y), to_halves(quants[i].z),
                                 to_halves(quants[i].w)};
        if constexpr (form == TokenForm::halves) {
          // The place beside differs in the lowest bit of the lane.
          uint32_t* const beside = &to.b[0][0][0][0] + ((at - &to.b[0][0][0][0]) ^ Step::lane_words);
          *reinterpret_cast<uint4*>(at) = make_uint4(halves[0].x, halves[0].y, halves[1].x, halves[1].y);
          *reinterpret_cast<uint4*>(beside) = make_uint4(halves[2].x, halves[2].y, halves[3].x, halves[3].y);
        } else {
#pragma unroll
          for (unsigned part = 0; part < 4; ++part) {
            uint32_t* const other = &to.b[0][0][0][0] + ((at - &to.b[0][0][0][0]) ^ (part * Step::lane_words));
            *reinterpret_cast<uint2*>(other) = halves[part];
          }
        }
      }
    }
  }

 private:
  // Bytes that count from -128 make 1024 + byte.
  static ZINC_DEVICE uint2 to_halves(uint32_t word) {
    constexpr uint32_t one = 0x3C003C00u;
    constexpr uint32_t minus_1152 = 0xE480E480u;
    const uint32_t bytes = word ^ 0x80808080u;
    return make_uint2(exact_halves(__byte_perm(bytes, 0x64646464u, 0x4240), one, minus_1152),
                      exact_halves(__byte_perm(bytes, 0x64646464u, 0x4341), one, minus_1152));
  }
};

// Four floats lie between the tokens of two blocks, so that those who store meet in fewer banks.
template <class Shape>
constexpr unsigned token_pitch = Shape::tokens + 4;

// The scales of a chunk's tokens, `floats` of each.
template <unsigned floats, class Shape>
struct TokenScales {
  alignas(16) float of[floats][chunk_blocks][token_pitch<Shape>];

  template <class Scales>
  ZINC_DEVICE void copy(const Int8Tokens& x, uint32_t k, uint32_t first, uint32_t chunk) {
    constexpr unsigned at_once = Shape::threads / chunk_blocks;
    uint32_t thread = threadIdx.x;
    forget(thread);
    const unsigned block = thread % chunk_blocks;
    const uint32_t at = min(chunk * chunk_blocks + block, k / token_block - 1);
#pragma unroll
    for (unsigned i = 0; i < (Shape::tokens + at_once - 1) / at_once; ++i) {
      const unsigned token = i * at_once + thread / chunk_blocks;
      if (Shape::tokens % at_once != 0 && token >= Shape::tokens) break;
      const uint64_t entry = min(first + token, x.count - 1) * x.scale_pitch + at;
#pragma unroll
      for (unsigned f = 0; f < floats; ++f) {
        async_copy<4>(shared_place(&of[f][block][token]), x.scales + entry * Scales::floats + f);
      }
    }
  }
};

// Where a lane finds its part of the operands; computed once where there are registers to keep it.
template <class Tokens, class Shape, bool kept>
struct LanePlace {
  uint32_t pair;   // of neighbouring rows in shared memory
  uint32_t token;  // word of the lane in the first block of a step
  uint32_t scale;  // token of its first sums

  ZINC_DEVICE LanePlace()
      : pair(Shape::warp_row() / 2 + lane_id() / 4),
        token((Shape::warp_token() / 8 * warp_size + Tokens::place(0, lane_id() / 4, lane_id() % 4)) *
              Tokens::lane_words),
        scale(Shape::warp_token() + lane_id() % 4 * 2) {
    if constexpr (kept) {
      keep(pair);
      keep(token);
      keep(scale);
    }
  }
  // The lane's words of block q and tile t.
  ZINC_DEVICE const uint32_t* words(const Tokens& tokens, unsigned q, unsigned t) const {
    return &tokens.b[q][t][0][0] + (token ^ (q * Tokens::block_exchange * Tokens::lane_words));
  }
};

// How a format's rows are multiplied: a struct with
//   form, scale_floats  of the tokens: their form, and whether their sums are needed beside their scales
//   stages_past_end     whether tokens are staged after the last step, too, which can need fewer registers
//   copy(chunk)         starts the copies of a chunk
//   prepare(step)       makes what multiply needs of a step beside raw rows
//   rescale(sum, step)  before the products of a step
//   multiply(sum, step, q, tokens, scales)   adds block q of a step
//   finish(sum, step)   after the last step
template <bool wide, class Format, class Shape>
struct MmaRows;

// q4_K and q5_K: quants times their 6-bit scales are whole numbers below 2048, and their sums over a block below 2^23.
template <bool wide, class Format, class Shape>
struct MmaKRows {
  static constexpr bool level = wide;
  static constexpr TokenForm form = TokenForm::halves;
  static constexpr bool stages_past_end = Format::block_bytes == Q4K::block_bytes;
  static constexpr unsigned scale_floats = 2;
  static constexpr bool fifth = Format::block_bytes > Q4K::block_bytes;
  static constexpr unsigned quants_at = fifth ? 48 : 16;
  using Tokens = TokenStep<form, Shape>;
  using Scales = TokenScales<scale_floats, Shape>;

  // Of two neighbouring rows each.
  struct Table {
    alignas(16) uint2 factor[chunk_blocks][Shape::rows / 2];  // of the quants, twice in a word
    alignas(16) float2 minimum[chunk_blocks][Shape::rows / 2];
    MmaUnits<Shape> units;
  };
  struct Tile {
    RawRows<wide, Format, Shape> raw[2];
    Table table[2];
  };
  Tile& tile;
  RowSource<Format, Shape> from;
  LanePlace<Tokens, Shape, false> lane;

  ZINC_DEVICE void copy(uint32_t chunk) { tile.raw[chunk % 2].copy(from, chunk); }

  ZINC_DEVICE void prepare(uint32_t step) {
    if (step % chunk_steps != 0) return;
    const uint32_t chunk = step / chunk_steps;
    Table& table = tile.table[chunk % 2];
    for (unsigned s = threadIdx.x; s < Shape::rows; s += Shape::threads) {
      const uint8_t* const head = tile.raw[chunk % 2].of[s] + tile.raw[0].shift(from, s, chunk);
      uint32_t words[4];
      if constexpr (wide) {
        read_four(reinterpret_cast<const uint32_t*>(head), words);
      } else {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) words[i] = reinterpret_cast<const uint32_t*>(head)[i];
      }
      const KUnit unit(words);
      table.units.store(s, unit, chunk == 0 ? nullptr : &tile.table[(chunk + 1) % 2].units);
#pragma unroll
      for (unsigned block = 0; block < chunk_blocks; ++block) {
        reinterpret_cast<uint32_t*>(table.factor[block])[s] = unit.is_zero ? 0 : unit.numbers.factor(block);
        reinterpret_cast<float*>(table.minimum[block])[s] = unit.minimum(block);
      }
    }
  }

  ZINC_DEVICE void rescale(MmaSums<Shape>& sum, uint32_t step) const {
    if (step % chunk_steps == 0) scale_rows<Shape>(sum, tile.table[step / chunk_steps % 2].units.ratio, lane.pair);
  }
  ZINC_DEVICE void finish(MmaSums<Shape>& sum, uint32_t step) const {
    scale_rows<Shape>(sum, tile.table[step / chunk_steps % 2].units.unit, lane.pair);
  }

  ZINC_DEVICE void multiply(MmaSums<Shape>& sum, uint32_t step, unsigned q, const Tokens& tokens,
                            const Scales& scales) const {
    const uint32_t chunk = step / chunk_steps;
    const unsigned pair = step % chunk_steps;
    const unsigned block = 2 * pair + q;
    const auto& raw = tile.raw[chunk % 2];
    const Table& table = tile.table[chunk % 2];
    const unsigned first = 2 * lane.pair;
    const uint8_t* const at = raw.of[first] + raw.shift(from, first, chunk) + lane.scale % 8 * 4;
    uint32_t a[Shape::row_tiles][2][4];
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
      const uint2 factors = table.factor[block][lane.pair + 8 * r];
      k_fragment<wide, fifth>(a[r], at + 16 * r * raw.pitch, raw.pitch, quants_at, pair, q, factors);
    }
    add_minimums(sum, table.minimum[block], scales.of[1][block]);
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      uint32_t b[4];
      read_four(lane.words(tokens, q, t), b);
      const float2 scale = *reinterpret_cast<const float2*>(&scales.of[0][block][lane.scale + 8 * t]);
      // Two tiles at a time, so that the second product of a tile need not wait for the first.
#pragma unroll
      for (unsigned two = 0; two < Shape::row_tiles; two += 2) {
        float c[2][4];
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) mma_half(c[r], a[two + r][0], {b[0], b[1]}, {0.0f, 0.0f, 0.0f, 0.0f});
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) mma_half(c[r], a[two + r][1], {b[2], b[3]});
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
          for (unsigned e = 0; e < 4; ++e) {
            float& mine = sum[t][two + r][e];
            mine = fmaf(c[r][e], e % 2 == 0 ? scale.x : scale.y, mine);
          }
        }
      }
    }
  }

 private:
  // Adds the products of a block's minimums with the sums of its tokens.
  ZINC_DEVICE void add_minimums(MmaSums<Shape>& sum, const float2 (&minimum)[Shape::rows / 2],
                                const float (&sums)[token_pitch<Shape>]) const {
    float2 of_token[Shape::token_tiles];
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      of_token[t] = *reinterpret_cast<const float2*>(&sums[lane.scale + 8 * t]);
    }
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
      const float2 of_row = minimum[lane.pair + 8 * r];
#pragma unroll
      for (unsigned t = 0; t < Shape::token_tiles; ++t) {
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) {
          float& mine = sum[t][r][e];
          mine = fmaf(e / 2 == 0 ? of_row.x : of_row.y, e % 2 == 0 ? of_token[t].x : of_token[t].y, mine);
        }
      }
    }
  }
};
template <bool wide, class Shape>
struct MmaRows<wide, Q4K, Shape> : MmaKRows<wide, Q4K, Shape> {};
template <bool wide, class Shape>
struct MmaRows<wide, Q5K, Shape> : MmaKRows<wide, Q5K, Shape> {};

// What rows of q6_K and q8_0 have in common: their bytes are not aligned, so that fragments are made once for the
// block.
template <bool level_, class Format, class Shape, TokenForm form_, unsigned extra, unsigned step_fragments>
struct MmaFragmentRows {
  static constexpr TokenForm form = form_;
  static constexpr bool stages_past_end = false;
  using Tokens = TokenStep<form, Shape>;
  static constexpr bool level = level_;
  static constexpr unsigned scale_floats = 1;
  static constexpr unsigned subs = token_block / Format::scale_columns;
  static constexpr bool has_units = Format::block_columns == chunk_columns;
  using Scales = TokenScales<scale_floats, Shape>;

  // Fragments and scales of a step. A scale's place: block, two rows, sub-block, row.
  struct Step {
    alignas(16) uint32_t a[Shape::rows / 16][step_fragments][warp_size][4];
    alignas(16) float scale[step_blocks][Shape::rows / 2][subs][2];
  };
  struct Tile : MmaChunkUnits<has_units, Shape> {
    RawRows<level, Format, Shape, extra> raw[2];
    Step step[2];
  };
  Tile& tile;
  RowSource<Format, Shape> from;
  LanePlace<Tokens, Shape, true> lane;

  ZINC_DEVICE void copy(uint32_t chunk) { tile.raw[chunk % 2].copy(from, chunk); }
  ZINC_DEVICE void rescale(MmaSums<Shape>& sum, uint32_t step) const {
    if constexpr (has_units) {
      if (step % chunk_steps == 0) scale_rows<Shape>(sum, tile.units[step / chunk_steps % 2].ratio, lane.pair);
    }
  }
  ZINC_DEVICE void finish(MmaSums<Shape>& sum, uint32_t step) const {
    if constexpr (has_units) scale_rows<Shape>(sum, tile.units[step / chunk_steps % 2].unit, lane.pair);
  }
};

// q6_K: quants are whole numbers in binary16, and sums in f32, also of 16 columns times their scale and 16 more.
template <bool wide, class Shape>
struct MmaRows<wide, Q6K, Shape> : MmaFragmentRows<false, Q6K, Shape, TokenForm::halves_by_half, 16, 4> {
  using Base = MmaFragmentRows<false, Q6K, Shape, TokenForm::halves_by_half, 16, 4>;
  using Base::from;
  using Base::lane;
  using Base::tile;
  using Tokens = typename Base::Tokens;

  ZINC_DEVICE void prepare(uint32_t step) {
    const unsigned group = lane_id() / 4;
    const unsigned part = lane_id() % 4;
    const uint32_t chunk = step / chunk_steps;
    const unsigned half = step % chunk_steps / 2;  // of the block
    const unsigned upper = step % 2;               // whether the quants' lower bits are the upper four of a byte
    auto& to = tile.step[step % 2];
    if (step % chunk_steps == 0) {
      for (unsigned s = threadIdx.x; s < Shape::rows; s += Shape::threads) {
        const Q6Unit unit(tile.raw[chunk % 2].of[s] + tile.raw[0].shift(from, s, chunk));
        tile.units[chunk % 2].store(s, unit, chunk == 0 ? nullptr : &tile.units[(chunk + 1) % 2]);
      }
    }
#pragma unroll 1
    for (unsigned r = warp_id(); r < Shape::rows / 16; r += Shape::warps) {
      uint32_t fragment[step_blocks][2][4];  // of a block's two scales
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned s = 16 * r + 2 * group + h;
        const uint8_t* const raw = tile.raw[chunk % 2].of[s];
        const unsigned shift = tile.raw[0].shift(from, s, chunk);
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
          uint32_t high[1];
          shared_words(raw, shift + 128 + 32 * half + 16 * j + 4 * part, high);
          high[0] >>= 4 * upper;
#pragma unroll
          for (unsigned q = 0; q < step_blocks; ++q) {
            uint32_t low[1];
            shared_words(raw, shift + 64 * half + 32 * q + 16 * j + 4 * part, low);
            low[0] >>= 4 * upper;
#pragma unroll
            for (unsigned odd = 0; odd < 2; ++odd) {
              constexpr uint32_t half_1024 = 0x64006400u;
              constexpr uint32_t half_one = 0x3C003C00u;
              constexpr uint32_t half_minus_1056 = 0xE420E420u;
              const uint32_t bits = q == 0 ? high[0] << 4 : high[0] << 2;
              const uint32_t number =
                  ((low[0] >> (8 * odd)) & 0x000F000Fu) | ((bits >> (8 * odd)) & 0x00300030u) | half_1024;
              fragment[q][j][2 * odd + h] = exact_halves(number, half_one, half_minus_1056);
            }
          }
        }
        // A lane has one of the four scales of the step.
        const unsigned at = shift + Q6Unit::scales_at + 4 * (step % chunk_steps) + part;
        to.scale[part / 2][s / 2][part % 2][h] = Q6Unit(raw + shift).scale(static_cast<int8_t>(raw[at]));
      }
#pragma unroll
      for (unsigned q = 0; q < step_blocks; ++q) {
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
          const uint32_t (&f)[4] = fragment[q][j];
          *reinterpret_cast<uint4*>(to.a[r][2 * q + j][lane_id()]) = make_uint4(f[0], f[1], f[2], f[3]);
        }
      }
    }
  }

  ZINC_DEVICE void multiply(MmaSums<Shape>& sum, uint32_t step, unsigned q, const Tokens& tokens,
                            const typename Base::Scales& scales) const {
    const auto& at = tile.step[step % 2];
    uint32_t a[Shape::row_tiles][2][4];
    float by[Shape::row_tiles][4];
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
      for (unsigned j = 0; j < 2; ++j) read_four(at.a[Shape::warp_row() / 16 + r][2 * q + j][lane_id()], a[r][j]);
      read_four(at.scale[q][lane.pair + 8 * r][0], by[r]);
    }
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      uint32_t b[4];
      read_four(lane.words(tokens, q, t), b);
      const float2 scale =
          *reinterpret_cast<const float2*>(&scales.of[0][step % chunk_steps * 2 + q][lane.scale + 8 * t]);
#pragma unroll
      for (unsigned r = 0; r < Shape::row_tiles; ++r) {
        float c[2][4];
        mma_half(c[0], a[r][0], {b[0], b[1]}, {0.0f, 0.0f, 0.0f, 0.0f});
        mma_half(c[1], a[r][1], {b[2], b[3]}, {0.0f, 0.0f, 0.0f, 0.0f});
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) {
          const float both = fmaf(by[r][2 + e / 2], c[1][e], by[r][e / 2] * c[0][e]);
          sum[t][r][e] = fmaf(both, e % 2 == 0 ? scale.x : scale.y, sum[t][r][e]);
        }
      }
    }
  }
};

// q8_0: quants are bytes of the integer instruction.
template <bool wide, class Shape>
struct MmaRows<wide, Q8_0, Shape> : MmaFragmentRows<wide, Q8_0, Shape, TokenForm::bytes, 0, 2> {
  using Base = MmaFragmentRows<wide, Q8_0, Shape, TokenForm::bytes, 0, 2>;
  using Base::from;
  using Base::lane;
  using Base::tile;
  using Tokens = typename Base::Tokens;

  ZINC_DEVICE void prepare(uint32_t step) {
    const unsigned group = lane_id() / 4;
    const unsigned part = lane_id() % 4;
    const uint32_t chunk = step / chunk_steps;
    auto& to = tile.step[step % 2];
#pragma unroll 1
    for (unsigned r = warp_id(); r < Shape::rows / 16; r += Shape::warps) {
      uint32_t words[2][step_blocks][2];
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned s = 16 * r + 2 * group + h;
        const unsigned at = tile.raw[0].shift(from, s, chunk) + step % chunk_steps * (step_blocks * Q8_0::block_bytes);
#pragma unroll
        for (unsigned q = 0; q < step_blocks; ++q) {
          shared_words(tile.raw[chunk % 2].of[s], at + q * Q8_0::block_bytes + 2 + 8 * part, words[h][q]);
        }
      }
#pragma unroll
      for (unsigned q = 0; q < step_blocks; ++q) {
        *reinterpret_cast<uint4*>(to.a[r][q][lane_id()]) =
            make_uint4(words[0][q][0], words[1][q][0], words[0][q][1], words[1][q][1]);
      }
      // A lane has the scale of one of two blocks of one of two rows.
      const unsigned q = part / 2;
      const unsigned s = 16 * r + 2 * group + part % 2;
      const uint8_t* const d = tile.raw[chunk % 2].of[s] + tile.raw[0].shift(from, s, chunk) +
                               (step % chunk_steps * step_blocks + q) * Q8_0::block_bytes;
      const bool present = step * step_blocks + q < from.k / token_block;
      to.scale[q][s / 2][0][s % 2] = present ? half_to_float(*reinterpret_cast<const uint16_t*>(d)) : 0.0f;
    }
  }

  ZINC_DEVICE void multiply(MmaSums<Shape>& sum, uint32_t step, unsigned q, const Tokens& tokens,
                            const typename Base::Scales& scales) const {
    const auto& at = tile.step[step % 2];
    uint32_t a[Shape::row_tiles][4];
    float2 by[Shape::row_tiles];
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
      read_four(at.a[Shape::warp_row() / 16 + r][q][lane_id()], a[r]);
      by[r] = *reinterpret_cast<const float2*>(at.scale[q][lane.pair + 8 * r][0]);
    }
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      const uint2 b = *reinterpret_cast<const uint2*>(lane.words(tokens, q, t));
      const float2 scale =
          *reinterpret_cast<const float2*>(&scales.of[0][step % chunk_steps * 2 + q][lane.scale + 8 * t]);
#pragma unroll
      for (unsigned r = 0; r < Shape::row_tiles; ++r) {
        constexpr int32_t origin = static_cast<int32_t>(sum_origin);
        int32_t c[4];
        mma_int8<32>(c, a[r], {b.x, b.y}, {origin, origin, origin, origin});
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) {
          const float factor = (e % 2 == 0 ? scale.x : scale.y) * (e / 2 == 0 ? by[r].x : by[r].y);
          sum[t][r][e] = fmaf(factor, exact_float(c[e]), sum[t][r][e]);
        }
      }
    }
  }
};

template <bool wide, class Format, class Shape>
struct MmaTile {
  using Rows = MmaRows<wide, Format, Shape>;
  typename Rows::Tile rows;
  TokenStep<Rows::form, Shape> tokens[2];
  TokenScales<Rows::scale_floats, Shape> scales[2];
  uint32_t first[2];  // row and token, here so that they need no registers
};

// finish(row, token, sums[r][matrix]) for the lane's fours of rows, counted from the first of the tile, and tokens.
template <class Scales, bool wide, class Format, class Shape, class Finish>
ZINC_DEVICE void mma_tile(MmaTile<wide, Format, Shape>& tile, const uint8_t* const (&matrix)[Shape::matrices],
                          uint32_t m, uint32_t k, uint32_t row, const Int8Tokens& x, uint32_t token, Finish finish) {
  using Rows = MmaRows<wide, Format, Shape>;
  Rows rows{{tile.rows, {matrix, m, k, row}, {}}};
  MmaSums<Shape> sum = {};
  TokenLoad<wide, Rows::form, Shape> load(x, k, token);
  const uint32_t steps = (k + step_columns - 1) / step_columns;
  const auto copy = [&](uint32_t chunk, uint32_t first_row, uint32_t first_token) {
    rows.from.first = first_row;
    rows.copy(chunk);
    tile.scales[chunk % 2].template copy<Scales>(x, k, first_token, chunk);
    async_commit();
  };
  if (threadIdx.x == 0) {
    tile.first[0] = row;
    tile.first[1] = token;
  }
  copy(0, row, token);
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    load.load(0, half);
    load.store(tile.tokens[0], half);
  }
  async_wait<0>();
  __syncthreads();
  rows.prepare(0);
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    const bool stages = Rows::stages_past_end || more;
    if (step % chunk_steps == chunk_steps - 1) async_wait<0>();
    __syncthreads();  // this step is there, and the readers of the one before it are done
    if (step % chunk_steps == 0 && step + chunk_steps < steps)
      copy(step / chunk_steps + 1, tile.first[0], tile.first[1]);
    rows.rescale(sum, step);
#pragma unroll 1
    for (unsigned q = 0; q < step_blocks; ++q) {
      if (stages)
        load.load(Rows::stages_past_end ? min(step + 1, steps - 1) : step + 1,
                  q);  // in flight while the products are formed
      rows.multiply(sum, step, q, tile.tokens[step % 2], tile.scales[step / chunk_steps % 2]);
      if (stages) load.store(tile.tokens[(step + 1) % 2], q);
    }
    if (more) {
      rows.from.first = tile.first[0];
      rows.prepare(step + 1);
    }
  }
  rows.finish(sum, steps - 1);
  constexpr unsigned fours = Shape::row_tiles / 2 / Shape::matrices;
#pragma unroll
  for (unsigned four = 0; four < fours; ++four) {
#pragma unroll
    for (unsigned t = 0; t < 2 * Shape::token_tiles; ++t) {
      float sums[4][Shape::matrices];
#pragma unroll
      for (unsigned r = 0; r < 4; ++r) {
#pragma unroll
        for (unsigned i = 0; i < Shape::matrices; ++i) {
          sums[r][i] = sum[t / 2][2 * (i * fours + four) + r / 2][r % 2 * 2 + t % 2];
        }
      }
      finish(tile.first[0] + Shape::matrix_row(Shape::warp_row() + 32 * four + lane_id() / 4 * 2),
             tile.first[1] + Shape::warp_token() + t / 2 * 8 + lane_id() % 4 * 2 + t % 2, sums);
    }
  }
}

}  // namespace zinc
