// Tiles of matrix-matrix products of quantized matrices with f32 tokens by wgmma: what mul_mm_half.cuh says of numbers
// holds here too, but numbers may be bfloat16. The first warpgroup splits activations into two numbers each and brings
// rows; the others decode rows in their registers and multiply.
#pragma once

#include "zinc/mul_mm_half.cuh"
#include "zinc/mul_mm_wgmma.cuh"
#include "zinc/quant/q4_k.cuh"
#include "zinc/quant/q5_k.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/q8_0.cuh"
#include "zinc/wgmma.cuh"

namespace zinc {

// A multiplying warpgroup has 64 * row_tiles of the block's rows and 64 * parts tokens; `bringers` warpgroups more
// bring them. The rows are of `matrices` matrices together.
template <unsigned row_tiles_, unsigned parts_, unsigned bringers_, unsigned matrices_>
struct WgmmaShape {
  static constexpr unsigned row_tiles = row_tiles_;
  static constexpr unsigned parts = parts_;
  static constexpr unsigned matrices = matrices_;
  static constexpr unsigned multipliers = 2;  // warpgroups
  static constexpr unsigned bringers = bringers_;
  static constexpr unsigned warps = multipliers * warpgroup_threads / warp_size;
  static constexpr unsigned warp_rows = 16 * row_tiles;
  static constexpr unsigned rows = warps * warp_rows;
  static constexpr unsigned matrix_rows = rows / matrices;
  static constexpr unsigned part_tokens = 64;
  static constexpr unsigned tokens = part_tokens * parts;
  static constexpr unsigned threads = bringers * warpgroup_threads;  // that bring rows and tokens
  static constexpr unsigned block_threads = threads + multipliers * warpgroup_threads;
  static_assert(row_tiles <= 2 && matrices <= 2);

  // Row group + 8 h of a warp's tile i is row s = 16 i + 2 group + h of its rows in shared memory. Which row of which
  // matrix that is, in the tile: a lane has `lane_rows` neighbouring ones of every matrix, the second one's as h = 1.
  static constexpr unsigned lane_rows = 2 * row_tiles / matrices;
  static ZINC_DEVICE unsigned matrix(unsigned s) { return s % matrices; }
  static ZINC_DEVICE unsigned matrix_row(unsigned s) {
    const unsigned lane_row = (s / 16 % row_tiles * 2 + s % 2) / matrices;
    return s / warp_rows * (warp_rows / matrices) + s % 16 / 2 * lane_rows + lane_row;
  }
  // The first of the multiplying warp's rows in shared memory.
  static ZINC_DEVICE unsigned warp_row() { return (warp_id() - threads / warp_size) * warp_rows; }

  // Token 16 part + 2 j + e of a part is row 8 j + 2 part + e of the operand: a lane has neighbouring tokens.
  static constexpr unsigned lane_tokens = 16;
};

// A lane's sums of a part of the tokens and of a tile of 16 rows: [j][2 h + e], as the instruction has them.
using WgmmaPart = float[WgmmaShape<1, 1, 1, 1>::part_tokens / 8][4];

// What activations are split into. Quants of q8_0 are whole numbers of 8 bits, which bfloat16 holds; so activations may
// have any size: two numbers keep 2^-17 of one. The quants of the others are multiplied by their integer scales, which
// binary16 holds; only where activations are too large or too small for it, they are bfloat16, too, and such a product
// of quants and scales is the sum of two.
template <class Format>
struct HalfNumberOf {
  using type = Binary16;
};
template <>
struct HalfNumberOf<Q8_0> {
  using type = Bfloat16;
};
template <class Format>
using HalfNumber = typename HalfNumberOf<Format>::type;
template <class Number>
constexpr float number_scale = is_bfloat<Number> ? 1.0f : half_scale;  // of activations

// Registers of a thread that multiplies, and of one that brings: together what a launch gives a block's warpgroups.
// Small tiles need no more than that.
template <class Shape>
constexpr unsigned half_common_registers = 65536 / Shape::block_threads / 8 * 8;
template <class Format, class Shape>
constexpr unsigned half_multiplier_registers =
    Shape::row_tiles * Shape::parts < 4 ? half_common_registers<Shape>
                                        : (Format::block_bytes == Q6K::block_bytes ? 224 : 216);
template <class Format, class Shape>
constexpr unsigned half_bringer_registers =
    ((Shape::bringers + 2) * half_common_registers<Shape> - 2 * half_multiplier_registers<Format, Shape>) /
    Shape::bringers;

// What a format with minimums needs of chunks.
template <class Shape, bool used, unsigned chunks>
struct HalfChunks {
  // Sums of 32 columns, first numbers and then second ones, in the order of the operands.
  alignas(16) uint32_t sums[chunks][Shape::tokens][chunk_blocks];
  // What the quants of a row's blocks are multiplied by (KNumbers::factor).
  alignas(16) uint32_t factors[chunks][chunk_blocks][Shape::rows];
};
template <class Shape, unsigned chunks>
struct HalfChunks<Shape, false, chunks> {};

// Stages of the ring of tokens, and chunks of rows that are in shared memory.
template <bool level_, class Format_, class Shape_, class Number_, unsigned stages_>
struct HalfWgmmaTile {
  static constexpr bool level = level_;
  static constexpr unsigned stages = stages_;
  static constexpr unsigned chunks = 2;
  // Of tokens on their way, as many as there is room for.
  static constexpr unsigned passes = Format_::block_columns == chunk_columns ? 4 : 2;
  using Format = Format_;
  using Shape = Shape_;
  using Number = Number_;
  using Operand = WgmmaOperand<Shape::tokens>;
  // Rows of q6_K lie apart in the banks.
  using Rows = RawRows<level, Format, Shape, Format::block_bytes == Q6K::block_bytes ? 16 : 0>;

  Operand first[stages];
  Operand second[stages];
  Rows rows[chunks];
  HalfChunks<Shape, Format::has_minimum, chunks> numbers;
  // Tokens on their way: what a thread of the first warpgroups has asked for and reads itself.
  static constexpr unsigned batch = 4 / Shape::bringers;
  float4 coming[passes][batch][Shape::threads];
  Ring<stages> ring;
  PhaseBarrier rows_come[chunks];
  PhaseBarrier verdict;
  float small[Shape::threads];                           // how many activations of a thread's tokens lost much, or more
  float largest[Shape::block_threads - Shape::threads];  // weight of a thread's rows
  uint32_t limits[2];
};

// The numbers of a block in shared memory.
template <bool wide>
ZINC_DEVICE KNumbers head_numbers(const uint8_t* head) {
  const uint2 low = two_words<wide>(head);
  const uint2 high = two_words<wide>(head + 8);
  return KNumbers({low.x, low.y, high.x, high.y});
}

// The first warpgroups.
template <bool aligned, class Tile>
struct HalfBringer {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  using Number = typename Tile::Number;
  using Operand = typename Tile::Operand;
  static constexpr float scale = number_scale<Number>;
  // Of columns, that a lane has of a token: with sums of 32 columns two, which then cost fewer exchanges, though copies
  // are of shorter runs.
  static constexpr unsigned fours = Format::has_minimum ? 2 : 1;
  static constexpr unsigned lanes = step_columns / (4 * fours);  // of a token
  static constexpr unsigned block_lanes = lanes / step_blocks;
  static constexpr unsigned tokens_at_once = Shape::threads / lanes;
  // A pass has a few tokens of a thread; those of several passes are on their way.
  static constexpr unsigned batch = Tile::batch / fours;
  static constexpr unsigned batches = Shape::tokens / tokens_at_once / batch;
  static constexpr unsigned passes = Tile::passes;
  static_assert(batches * batch * tokens_at_once == Shape::tokens && (passes % batches == 0 || batches % passes == 0));
  static constexpr uint32_t half_two = 0x4000u * both_halves;
  static constexpr uint32_t half_steepness = 0xD000u * both_halves;
  static_assert(half_small == 1.0f / 32.0f);

  const float* next_columns;  // the thread's of its first token, in the next stage to ask for
  const float* next;          // of its next token to ask for
  uint64_t stride;            // floats from one of its tokens to the next
  uint32_t further;           // tokens of the product after its first one
  uint32_t place;             // in bytes, of what it stores of its first token, in an operand
  uint32_t most;  // how many activations of a token and of the stage lost much, or more, as the sum of two numbers

  // Whether the last stage may have fewer columns: the rest is zero.
  static constexpr bool may_be_ragged = !Tile::level && Format::block_columns < step_columns;

  // Where a token's numbers are in the operand. It moves as many rows on as another token's place where none of the
  // tokens' numbers has a bit of the other's.
  static ZINC_DEVICE unsigned operand_row(unsigned token) {
    const unsigned t = token % Shape::part_tokens;
    const unsigned lane = t / Shape::lane_tokens;
    return token - t + t % Shape::lane_tokens / 2 * 8 + 2 * lane + t % 2;
  }
  // A place so many rows on, where pieces are exchanged by other numbers.
  static ZINC_DEVICE uint32_t moved(uint32_t place, unsigned rows) {
    return (place ^ rows % 8 * sizeof(uint4)) + rows * sizeof(Operand::pieces[0]);
  }

  // Number p of the lane's first four 2 p + c; its second one is 2 p + 2 + c.
  static ZINC_DEVICE unsigned number() { return threadIdx.x % block_lanes / 2 * fours; }
  // The lane's first column of a stage.
  static ZINC_DEVICE unsigned column() {
    return threadIdx.x % lanes / block_lanes * token_block + number() * 8 + threadIdx.x % 2 * 4;
  }

  template <class Source>
  ZINC_DEVICE void start(const Source& x, uint32_t first) {
    const unsigned token = threadIdx.x / lanes % tokens_at_once;
    const uint32_t mine = min(first + token, x.count - 1);
    next_columns = x.columns(mine) + column();
    stride = tokens_at_once * x.stride;
    further = x.count - 1 - mine;
    // Of 32 columns, four 2 p + c are numbers p of pieces 2 c and 2 c + 1 of the block's four: the even columns, and
    // the odd ones.
    const unsigned row = operand_row(token);
    const unsigned piece = threadIdx.x % lanes / block_lanes * 4 + threadIdx.x % 2 * 2;
    place = row * sizeof(Operand::pieces[0]) + Operand::place(row, piece) * sizeof(uint4) + number() * sizeof(uint32_t);
    keep(place);
  }

  // Asks for the next pass, number `pass` from those of stage `step` on; past the last stage for nothing. Tokens past
  // the end are replaced by the thread's last.
  ZINC_DEVICE void ask(Tile& tile, uint32_t k, uint32_t step, unsigned pass) {
    const uint32_t first = (step + pass / batches) * step_columns;
    if (first < k) {
      if (pass % batches == 0) {
        next = next_columns;
        next_columns += step_columns;
      }
      constexpr unsigned part_columns = Format::block_columns;
      const bool present = !may_be_ragged || first + column() < k;
      const SharedPlace to = shared_place(&tile.coming[(step * batches + pass) % passes][0][threadIdx.x]);
#pragma unroll
      for (unsigned j = 0; j < batch; ++j) {
#pragma unroll
        for (unsigned i = 0; i < fours; ++i) {
          const SharedPlace four = to + (fours * j + i) * sizeof(tile.coming[0][0]);
          if constexpr (aligned) {
            async_copy<sizeof(float4)>(four, next + 8 * i);
          } else {
            const float* const from = next + 8 * i - (present ? 0 : part_columns);
#pragma unroll
            for (unsigned c = 0; c < 4; ++c) {
              async_copy_or_zero<sizeof(float)>(four + c * sizeof(float), from + c, present);
            }
          }
        }
        if ((pass % batches * batch + j + 1) * tokens_at_once <= further) next += stride;
      }
    }
    async_commit();
  }

  ZINC_DEVICE void store(Tile& tile, uint32_t stage, unsigned b) {
    float4 value[batch][fours];
#pragma unroll
    for (unsigned j = 0; j < batch * fours; ++j) {
      value[j / fours][j % fours] = tile.coming[(stage * batches + b) % passes][j][threadIdx.x];
    }
    uint8_t* const first = reinterpret_cast<uint8_t*>(&tile.first[stage % Tile::stages]);
    uint8_t* const second = reinterpret_cast<uint8_t*>(&tile.second[stage % Tile::stages]);
    uint32_t start = moved(place, operand_row(b * batch * tokens_at_once));
    forget(start);
    float sum[batch] = {};
#pragma unroll
    for (unsigned j = 0; j < batch; ++j) {
      const uint32_t to = moved(start, operand_row(j * tokens_at_once));
      uint32_t words[2][2][fours];  // of even and odd columns: first numbers, and second ones
      uint32_t lost = 0;
#pragma unroll
      for (unsigned i = 0; i < fours; ++i) {
        const float4& four = value[j][i];
        const float v[4] = {four.x * scale, four.y * scale, four.z * scale, four.w * scale};
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          const Split<Number> both(v[odd], v[2 + odd]);
          words[odd][0][i] = both.first;
          words[odd][1][i] = both.second;
          if constexpr (!is_bfloat<Number>) {
            const uint32_t mine = saturated_halves(both.first, half_steepness, half_two);
            lost = i + odd == 0 ? mine : exact_halves(mine, half_one, lost);
          }
        }
        sum[j] += (v[0] + v[1]) + (v[2] + v[3]);
      }
#pragma unroll
      for (unsigned odd = 0; odd < 2; ++odd) {
        store_words(first + (to ^ odd * sizeof(uint4)), words[odd][0]);
        store_words(second + (to ^ odd * sizeof(uint4)), words[odd][1]);
      }
      if constexpr (!is_bfloat<Number>) most = max_halves(most, lost);
    }
    if constexpr (Format::has_minimum) {
      // Of the lanes with a token's 32 columns, equally many have each of the sums.
      constexpr unsigned share = block_lanes / batch;
      const float mine = warp_sums<block_lanes>(sum);
      if (threadIdx.x % share == 0) {
        const unsigned row = operand_row((b * batch + threadIdx.x % block_lanes / share) * tokens_at_once +
                                         threadIdx.x % Shape::threads / lanes);
        const Split<Number> numbers(mine, 0.0f);
        uint16_t* const to = reinterpret_cast<uint16_t*>(tile.numbers.sums[stage / chunk_steps % Tile::chunks][row]) +
                             stage % chunk_steps * step_blocks + threadIdx.x % lanes / block_lanes;
        to[0] = static_cast<uint16_t>(numbers.first);
        to[chunk_blocks] = static_cast<uint16_t>(numbers.second);
      }
    }
  }
  static ZINC_DEVICE void store_words(uint8_t* to, const uint32_t (&words)[fours]) {
    if constexpr (fours == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = words[0];
    }
  }

  ZINC_DEVICE void copy_rows(Tile& tile, const RowSource<Format, Shape>& from, uint32_t chunk) {
    uint32_t thread = threadIdx.x;
    forget(thread);
    tile.rows[chunk % Tile::chunks].copy_in_turn(from, chunk, thread);
    // Not all of it may be copies.
    PhaseBarrier& full = tile.rows_come[chunk % Tile::chunks];
    phase_arrive(full);
    phase_arrive_after_copies(full);
  }

  ZINC_DEVICE void make_factors(Tile& tile, const RowSource<Format, Shape>& from, uint32_t chunk) {
    phase_wait(tile.rows_come[chunk % Tile::chunks], chunk / Tile::chunks % 2);
    const auto& rows = tile.rows[chunk % Tile::chunks];
#pragma unroll 1
    for (unsigned s = threadIdx.x; s < Shape::rows; s += Shape::threads) {
      const KNumbers numbers = head_numbers<Tile::level>(rows.of[s] + rows.shift(from, s, chunk));
#pragma unroll
      for (unsigned block = 0; block < chunk_blocks; ++block) {
        tile.numbers.factors[chunk % Tile::chunks][block][s] = numbers.factor(block);
      }
    }
  }

  template <class Source>
  ZINC_DEVICE void run(Tile& tile, const RowSource<Format, Shape>& from, const Source& x, uint32_t token) {
    const uint32_t stages = (from.k - 1) / step_columns + 1;
    // Copies of single floats are many, and seldom.
    constexpr unsigned unrolled = aligned ? batches : 1;
    tile.small[threadIdx.x] = 0.0f;
    start(x, token);
#pragma unroll
    for (unsigned i = 0; i < passes - 1; ++i) ask(tile, from.k, 0, i);
#pragma unroll 1
    for (uint32_t step = 0; step < stages; ++step) {
      tile.ring.wait_empty(step);
      // With the stage before it, the multiplying warps have released all of a chunk, whose place is free.
      static_assert(Tile::chunks == 2 && Tile::stages <= chunk_steps);
      const uint32_t next = step == 0 ? 0 : step + chunk_steps + 1 - Tile::stages;
      if (next % chunk_steps == 0 && next < stages) copy_rows(tile, from, next / chunk_steps);
      if constexpr (Format::has_minimum) {
        if (step % chunk_steps == 0) make_factors(tile, from, step / chunk_steps);
      }
      most = 0;
#pragma unroll unrolled
      for (unsigned b = 0; b < batches; ++b) {
        constexpr unsigned ahead = passes - 1;
        ask(tile, from.k, step, b + ahead);
        async_wait<ahead>();
        store(tile, step, b);
      }
      tile.small[threadIdx.x] +=
          half_to_float(static_cast<uint16_t>(most)) + half_to_float(static_cast<uint16_t>(most >> 16));
      wgmma_written();
      tile.ring.filled(step);
    }
  }
};

// Products of a block q of 32 columns of a stage with a part of the tokens, of both numbers, as a group; added to
// `products` unless they are the first. Where a row is the sum of two operands of binary16, the product of the second
// numbers is too small to be seen.
template <unsigned operands, class Tile>
ZINC_DEVICE void multiply_block(WgmmaPart& products, const Tile& tile, const uint32_t (&a)[operands][2][4],
                                uint32_t stage, unsigned part, unsigned q, bool adds) {
  constexpr unsigned tokens = Tile::Shape::part_tokens;
  using Number = typename Tile::Number;
  const auto& first = tile.first[stage % Tile::stages];
  const auto& second = tile.second[stage % Tile::stages];
  wgmma_begin();
#pragma unroll
  for (unsigned c = 0; c < 2; ++c) {
    const unsigned step = 2 * q + c;
    wgmma_half<tokens, Number>(products, a[0][c], wgmma_columns(first, part * tokens, step), adds || c != 0);
    wgmma_half<tokens, Number>(products, a[0][c], wgmma_columns(second, part * tokens, step), true);
    if constexpr (operands == 2) {
      wgmma_half<tokens, Number>(products, a[1][c], wgmma_columns(first, part * tokens, step), true);
    }
    if constexpr (operands == 2 && is_bfloat<Number>) {
      wgmma_half<tokens, Number>(products, a[1][c], wgmma_columns(second, part * tokens, step), true);
    }
  }
  wgmma_commit();
}

// How a lane decodes q4_K and q5_K: quants times their scales, as multiples of k_factor_unit in binary16.
template <class Tile>
struct HalfKDecoder {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  static constexpr unsigned operands = 1;
  static constexpr bool fifth = Format::block_bytes > Q4K::block_bytes;
  static constexpr unsigned quants_at = fifth ? 48 : 16;
  static constexpr unsigned factor_at = 0;
  static constexpr float unit = k_factor_unit;
  static constexpr bool waits = false;  // who fills the first stage of a chunk has waited for its rows

  // Of two rows from shared row s on, block q of a step's 64 columns.
  static ZINC_DEVICE void decode(uint32_t (&a)[operands][2][4], const Tile& tile, const uint32_t (&starts)[2],
                                 unsigned s, uint32_t chunk, unsigned pair, unsigned q) {
    constexpr unsigned pitch = Tile::Rows::pitch;
    const uint8_t* const at = tile.rows[chunk % Tile::chunks].of[s] + starts[0];
    const uint2 factors = *reinterpret_cast<const uint2*>(&tile.numbers.factors[chunk % Tile::chunks][2 * pair + q][s]);
    k_fragment<Tile::level, fifth>(a[0], at + lane_id() % 4 * 8, pitch, quants_at, pair, q, factors);
  }
  // The row's largest weight, in absolute value, or more, as a lane of its four knows it.
  static ZINC_DEVICE float largest(const uint8_t* row, float d) {
    constexpr float top = 63.0f * 31.0f;
    const float dmin = half_to_float(reinterpret_cast<const uint16_t*>(row)[1]);
    return fabsf(d) * top + fabsf(dmin) * 63.0f;
  }
};

// And q6_K: a quant times its scale has 12 bits and a sign, and is the sum of two numbers.
template <class Tile>
struct HalfQ6Decoder {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  static constexpr unsigned operands = 2;
  static constexpr unsigned high_at = 128;
  static constexpr unsigned scales_at = 192;
  static constexpr unsigned factor_at = 208;
  static constexpr float unit = 0x1p-18f;
  static constexpr bool waits = true;

  static ZINC_DEVICE void decode(uint32_t (&a)[operands][2][4], const Tile& tile, const uint32_t (&starts)[2],
                                 unsigned s, uint32_t chunk, unsigned pair, unsigned q) {
    constexpr uint32_t half_2_15 = 0x78007800u;
    constexpr uint32_t half_minus_32_units = 0xAC00AC00u;
    constexpr uint32_t half_minus_128_units = 0xB400B400u;
    const unsigned part = lane_id() % 4;
    const unsigned upper = pair % 2 * 4;  // which bits of their bytes the quants are
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const uint8_t* const row = tile.rows[chunk % Tile::chunks].of[s + h];
      const unsigned selector = 0x3210u + starts[h] % 4 * 0x1111u;
      const uint32_t* const from = reinterpret_cast<const uint32_t*>(row + (starts[h] / 4 * 4 + part * 8));
      const uint32_t* const low = from + (pair / 2 * 64 + q * 32) / 4;
      const uint32_t* const high = from + (high_at + pair / 2 * 32) / 4;
      const uint32_t biased = row[starts[h] + scales_at + pair * 4 + q * 2 + part / 2] ^ 0x80u;
      // The bits of a whole number are those of a subnormal one, 2^-24 times as much; so these units are 2^-9.
      const uint32_t scale = exact_halves(__byte_perm(biased, 0, 0x4040u), half_2_15, half_minus_128_units);
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
        const uint32_t lower = __byte_perm(low[c], low[c + 1], selector) >> upper;
        const uint32_t higher = __byte_perm(high[c], high[c + 1], selector);
        const uint32_t bits = __funnelshift_l(higher, higher, 4 - 2 * q - upper);
        const uint32_t quants = (lower & 0x0F0F0F0Fu) | (bits & 0x30303030u);
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          const uint32_t two = odd == 0 ? quants & 0x00FF00FFu : __byte_perm(quants, 0, 0x4341u);
          const uint32_t quant = exact_halves(two, half_2_15, half_minus_32_units);
          const uint32_t first = exact_halves(quant, scale, 0);  // rounded
          a[0][c][2 * odd + h] = first;
          a[1][c][2 * odd + h] = exact_halves(quant, scale, first ^ 0x80008000u);
        }
      }
    }
  }
  static ZINC_DEVICE float largest(const uint8_t* row, float d) {
    const int8_t* const scales = reinterpret_cast<const int8_t*>(row) + scales_at + lane_id() % 4 * 4;
    int most = 0;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) most = max(most, abs(static_cast<int>(scales[i])));
    return fabsf(d) * static_cast<float>(32 * most);
  }
};

template <class Tile, bool has_minimum = Tile::Format::has_minimum>
struct HalfDecoderOf {
  using type = HalfKDecoder<Tile>;
};
template <class Tile>
struct HalfDecoderOf<Tile, false> {
  using type = HalfQ6Decoder<Tile>;
};

// A multiplying warpgroup, for formats that have one factor for 256 columns.
template <class Tile>
struct HalfMultiplier {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  using Source = RowSource<Format, Shape>;
  using Number = typename Tile::Number;
  using Decoder = typename HalfDecoderOf<Tile>::type;
  using Sums = WgmmaPart[Shape::row_tiles][Shape::parts];
  static constexpr unsigned operands = is_bfloat<Number> ? 2 : Decoder::operands;
  using Operand = uint32_t[step_blocks][operands][2][4];  // 64 columns of 16 rows
  // A product counts quants times scales in the decoder's unit.
  static constexpr float product_unit = 1.0f / (Decoder::unit * number_scale<Number>);

  Tile& tile;
  const Source& from;
  // A byte for each of the lane's rows: how far the first chunk is from a multiple of 16 bytes.
  uint32_t starts = 0;

  // The largest weight of the lane's rows, in absolute value, or more: there is no register for it.
  ZINC_DEVICE float& largest() const { return tile.largest[threadIdx.x - Shape::threads]; }
  static ZINC_DEVICE unsigned shared_row(unsigned r) { return Shape::warp_row() + 16 * r + lane_id() / 4 * 2; }
  // Where the chunks of the lane's two neighbouring rows of tile r start.
  ZINC_DEVICE void starts_of(uint32_t (&start)[2], uint32_t chunk, unsigned r) const {
    uint32_t packed = starts;
    if constexpr (!Tile::level) forget(packed);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      start[h] = Tile::level ? 0 : ((packed >> (16 * r + 8 * h)) + chunk * Tile::Rows::bytes) % 16;
    }
  }
  // The lane's row h of tile r.
  ZINC_DEVICE const uint8_t* row(uint32_t chunk, unsigned r, unsigned h) const {
    uint32_t start[2];
    starts_of(start, chunk, r);
    return tile.rows[chunk % Tile::chunks].of[shared_row(r) + h] + start[h];
  }
  // Block q of the 64 columns of tile r.
  ZINC_DEVICE void decode(Operand& a, uint32_t chunk, unsigned pair, unsigned r, unsigned q) const {
    uint32_t start[2];
    starts_of(start, chunk, r);
    if constexpr (is_bfloat<Number>) {
      uint32_t halves[Decoder::operands][2][4];
      Decoder::decode(halves, tile, start, shared_row(r), chunk, pair, q);
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) {
        float value[2] = {};
#pragma unroll
        for (unsigned o = 0; o < Decoder::operands; ++o) {
          const uint32_t two = halves[o][i / 4][i % 4];
          value[0] += half_to_float(static_cast<uint16_t>(two));
          value[1] += half_to_float(static_cast<uint16_t>(two >> 16));
        }
        const Split<Number> numbers(value[0], value[1]);
        a[q][0][i / 4][i % 4] = numbers.first;
        a[q][1][i / 4][i % 4] = numbers.second;
      }
    } else {
      Decoder::decode(a[q], tile, start, shared_row(r), chunk, pair, q);
    }
  }
  ZINC_DEVICE void wait_chunk(uint32_t chunk) {
    tile.ring.wait_full(chunk * chunk_steps);
    if constexpr (Decoder::waits) phase_wait(tile.rows_come[chunk % Tile::chunks], chunk / Tile::chunks % 2);
  }

  ZINC_DEVICE void subtract_minimums(Sums& sum, uint32_t chunk) const {
    const unsigned part = lane_id() % 4;
    uint32_t minimums[Shape::row_tiles][2];
    float factor[Shape::row_tiles][2];
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const uint8_t* const at = row(chunk, r, h);
        const KNumbers mine = head_numbers<Tile::level>(at);
        const uint32_t two =
            __byte_perm(part < 2 ? mine.minimums[0] : mine.minimums[1], 0x64646464u, part % 2 == 0 ? 0x4140u : 0x4342u);
        const uint32_t halves = exact_halves(two, half_one, half_minus_1024);
        minimums[r][h] = is_bfloat<Number> ? Number::pair(half_to_float(static_cast<uint16_t>(halves)),
                                                          half_to_float(static_cast<uint16_t>(halves >> 16)))
                                           : halves;
        factor[r][h] = half_to_float(reinterpret_cast<const uint16_t*>(at)[1]) * (-1.0f / number_scale<Number>);
      }
    }
    const auto& sums = tile.numbers.sums[chunk % Tile::chunks];
#pragma unroll
    for (unsigned t = 0; t < Shape::tokens / 8; ++t) {
      const uint32_t* const token = sums[8 * t + lane_id() / 4];
      const uint32_t b[2] = {token[part], token[4 + part]};
#pragma unroll
      for (unsigned r = 0; r < Shape::row_tiles; ++r) {
        float product[4];
        mma_half<Number>(product, {minimums[r][0], minimums[r][1], minimums[r][0], minimums[r][1]}, b,
                         {0.0f, 0.0f, 0.0f, 0.0f});
        float (&mine)[4] = sum[r][t / (Shape::part_tokens / 8)][t % (Shape::part_tokens / 8)];
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) mine[e] = fmaf(factor[r][e / 2], product[e], mine[e]);
      }
    }
  }

  ZINC_DEVICE void run(Sums& sum) {
    const uint32_t chunks = from.k / chunk_columns;
    if constexpr (!Tile::level) {
#pragma unroll
      for (unsigned i = 0; i < 2 * Shape::row_tiles; ++i) {
        starts |= Tile::Rows::shift(from, shared_row(i / 2) + i % 2, 0) << (8 * i);
      }
    }
    largest() = 0.0f;
    Operand a;
    wait_chunk(0);
    decode(a, 0, 0, 0, 0);
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      float factor[Shape::row_tiles][2];
      float most = 0.0f;
#pragma unroll
      for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
          const uint8_t* const at = row(chunk, r, h);
          const float d = half_to_float(*reinterpret_cast<const uint16_t*>(at + Decoder::factor_at));
          factor[r][h] = d * product_unit;
          // What bfloat16 loses does not depend on it.
          if constexpr (!is_bfloat<Number>) most = fmaxf(most, Decoder::largest(at, d));
        }
      }
      largest() = fmaxf(largest(), most);
#pragma unroll 1
      for (unsigned pair = 0; pair < chunk_steps; ++pair) {
        const uint32_t stage = chunk * chunk_steps + pair;
        tile.ring.wait_full(stage);
#pragma unroll
        for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
          for (unsigned part = 0; part < Shape::parts; ++part) {
            WgmmaPart products;
            multiply_block(products, tile, a[0], stage, part, 0, false);
            // Of the two halves of the operand, one is decoded while the other is multiplied.
            if (part == 0) decode(a, chunk, pair, r, 1);
            multiply_block(products, tile, a[1], stage, part, 1, true);
            if (part == Shape::parts - 1) {
              const bool last = r == Shape::row_tiles - 1;
              const bool ends = last && pair == chunk_steps - 1;
              const uint32_t next_chunk = ends ? min(chunk + 1, chunks - 1) : chunk;
              if (ends && chunk + 1 < chunks) wait_chunk(chunk + 1);
              wgmma_wait<1>();
              decode(a, next_chunk, last ? (pair + 1) % chunk_steps : pair, last ? 0 : r + 1, 0);
            }
            wgmma_wait_for<0>(products);
#pragma unroll
            for (unsigned j = 0; j < Shape::part_tokens / 8; ++j) {
#pragma unroll
              for (unsigned e = 0; e < 4; ++e) {
                sum[r][part][j][e] = fmaf(factor[r][e / 2], products[j][e], sum[r][part][j][e]);
              }
            }
          }
        }
        if constexpr (Format::has_minimum) {
          if (pair == chunk_steps - 1) subtract_minimums(sum, chunk);
        }
        tile.ring.emptied(stage);
      }
    }
  }
};

// A multiplying warpgroup, for q8_0: blocks of 32 columns have a factor of their own.
template <class Tile>
struct HalfByteMultiplier {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  using Source = RowSource<Format, Shape>;
  using Sums = WgmmaPart[Shape::row_tiles][Shape::parts];
  static constexpr unsigned quants_at = 2;
  static constexpr float unit = 0x1p-6f;  // of a product
  static constexpr uint32_t bfloat_2_127 = 0x7F007F00u;
  static constexpr uint32_t bfloat_minus_128_units = 0xC000C000u;
  static_assert(Format::block_columns == token_block && Format::block_bytes == quants_at + token_block);

  Tile& tile;
  const Source& from;
  // What bfloat16 loses does not depend on weights.
  static ZINC_DEVICE float largest() { return 0.0f; }

  // Block q of step's 64 columns of tile r, and its factors; past the end of the rows these are zero.
  ZINC_DEVICE void decode(uint32_t (&a)[1][2][4], float (&factor)[2], uint32_t step, unsigned r, unsigned q) {
    const uint32_t chunk = step / chunk_steps;
    const uint32_t block = step % chunk_steps * step_blocks + q;
    const auto& rows = tile.rows[chunk % Tile::chunks];
    const unsigned s = Shape::warp_row() + 16 * r + lane_id() / 4 * 2;
    const bool present = Tile::level || (chunk * chunk_blocks + block) * token_block < from.k;
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned at = block * Format::block_bytes + rows.shift(from, s + h, chunk);
      const uint16_t d = *reinterpret_cast<const uint16_t*>(rows.of[s + h] + at);
      const float weight = present ? half_to_float(d) : 0.0f;
      factor[h] = weight * (1.0f / unit);
      uint32_t words[2];
      shared_words(rows.of[s + h], at + quants_at + lane_id() % 4 * 8, words);
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) {
          // The bits of a whole number are those of a subnormal one, or of one just above them, 2^-133 times as much.
          const uint32_t bits = ((words[c] >> (8 * odd)) & 0x00FF00FFu) ^ 0x00800080u;
          a[0][c][2 * odd + h] = exact_bfloats(bits, bfloat_2_127, bfloat_minus_128_units);
        }
      }
    }
  }

  ZINC_DEVICE void wait_rows(uint32_t chunk) {
    phase_wait(tile.rows_come[chunk % Tile::chunks], chunk / Tile::chunks % 2);
  }

  ZINC_DEVICE void run(Sums& sum) {
    const uint32_t steps = (from.k - 1) / step_columns + 1;
    uint32_t a[2][1][2][4];
    float factor[2][2];
    wait_rows(0);
    decode(a[0], factor[0], 0, 0, 0);
#pragma unroll 1
    for (uint32_t step = 0; step < steps; ++step) {
      tile.ring.wait_full(step);
#pragma unroll
      for (unsigned unit = 0; unit < Shape::row_tiles * step_blocks; ++unit) {
        const unsigned r = unit / step_blocks;
        const unsigned q = unit % step_blocks;
#pragma unroll
        for (unsigned part = 0; part < Shape::parts; ++part) {
          WgmmaPart products;
          multiply_block(products, tile, a[q], step, part, q, false);
          if (part == 0) {
            // The next block meanwhile.
            const bool last = unit == Shape::row_tiles * step_blocks - 1;
            const uint32_t next = last ? min(step + 1, steps - 1) : step;
            if (last && next % chunk_steps == 0) wait_rows(next / chunk_steps);
            decode(a[1 - q], factor[1 - q], next, last ? 0 : (unit + 1) / step_blocks, 1 - q);
          }
          wgmma_wait_for<0>(products);
#pragma unroll
          for (unsigned j = 0; j < Shape::part_tokens / 8; ++j) {
#pragma unroll
            for (unsigned e = 0; e < 4; ++e) {
              sum[r][part][j][e] = fmaf(factor[q][e / 2], products[j][e], sum[r][part][j][e]);
            }
          }
        }
      }
      tile.ring.emptied(step);
    }
  }
};

template <class Tile, bool by_chunks = Tile::Format::block_columns == chunk_columns>
struct HalfMultiplierOf {
  using type = HalfMultiplier<Tile>;
};
template <class Tile>
struct HalfMultiplierOf<Tile, false> {
  using type = HalfByteMultiplier<Tile>;
};

// finish(row, token, sums[r][matrix]) for the lane's neighbouring rows from `row` on, counted as `first_row` is, and
// all of its tokens.
template <class Shape, class Finish>
ZINC_DEVICE void finish_sums(const WgmmaPart (&sum)[Shape::row_tiles][Shape::parts], uint32_t first_row,
                             uint32_t first_token, Finish finish) {
  const uint32_t row = first_row + Shape::warp_row() / Shape::matrices + lane_id() / 4 * Shape::lane_rows;
  const uint32_t token = first_token + lane_id() % 4 * Shape::lane_tokens;
#pragma unroll
  for (unsigned part = 0; part < Shape::parts; ++part) {
#pragma unroll
    for (unsigned j = 0; j < Shape::part_tokens / 8; ++j) {
#pragma unroll
      for (unsigned e = 0; e < 2; ++e) {
        float sums[Shape::lane_rows][Shape::matrices];
#pragma unroll
        for (unsigned i = 0; i < 2 * Shape::row_tiles; ++i) {
          sums[i / Shape::matrices][i % Shape::matrices] = sum[i / 2][part][j][i % 2 * 2 + e];
        }
        finish(row, token + part * Shape::part_tokens + 2 * j + e, sums);
      }
    }
  }
}

// The tile at (row, token) by all threads of the block: finish(row, token, sums of Shape::lane_rows rows of each
// matrix). Or false in all of them, if the sums are not as exact as the contracts ask (half_product).
template <bool aligned, class Tile, class Source, class Finish>
ZINC_DEVICE bool half_wgmma_tile(Tile& tile, const RowSource<typename Tile::Format, typename Tile::Shape>& from,
                                 const Source& x, uint32_t token, Finish finish) {
  using Shape = typename Tile::Shape;
  using Format = typename Tile::Format;
  constexpr bool moves = half_multiplier_registers<Format, Shape> != half_common_registers<Shape>;
  const auto verdict = [&] {
    phase_arrive(tile.verdict);
    phase_wait(tile.verdict, 0);
    // Sums of 32 activations lose as much as one.
    const float lossy = __uint_as_float(tile.limits[0]) + static_cast<float>(from.k / token_block);
    return lossy * __uint_as_float(tile.limits[1]) <= half_allowed;
  };
  if (threadIdx.x < Shape::threads) {
    if constexpr (moves) give_registers<half_bringer_registers<Format, Shape>>();
    HalfBringer<aligned, Tile> bringer;
    bringer.run(tile, from, x, token);
    // The bits of floats that are not negative are in their order, NaN above all.
    atomicMax(&tile.limits[0], __float_as_uint(warp_sum<bringer.lanes>(tile.small[threadIdx.x])));
    const bool good = verdict();
    if constexpr (moves) take_registers<half_common_registers<Shape>>();
    return good;
  }
  if constexpr (moves) take_registers<half_multiplier_registers<Format, Shape>>();
  using Multiplier = typename HalfMultiplierOf<Tile>::type;
  Multiplier multiplier{tile, from};
  typename Multiplier::Sums sum = {};
  multiplier.run(sum);
  bool finite = true;
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
    for (unsigned part = 0; part < Shape::parts; ++part) {
#pragma unroll
      for (unsigned j = 0; j < Shape::part_tokens / 8; ++j) {
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) finite = finite && fabsf(sum[r][part][j][e]) < __uint_as_float(0x7F800000u);
      }
    }
  }
  atomicMax(&tile.limits[1], finite ? __float_as_uint(multiplier.largest()) : 0x7FFFFFFFu);
  const bool good = verdict();
  if (good) finish_sums<Shape>(sum, from.first, token, finish);
  if constexpr (moves) give_registers<half_common_registers<Shape>>();
  return good;
}

// Ends the barriers of a block, whose place others take. All threads call it; a barrier of the block comes before and
// follows.
template <class Tile>
ZINC_DEVICE void end_barriers(Tile& tile) {
  if (threadIdx.x != 0) return;
  tile.ring.end();
#pragma unroll
  for (unsigned i = 0; i < Tile::chunks; ++i) phase_end(tile.rows_come[i]);
  phase_end(tile.verdict);
}

// Makes the barriers of a block. All threads call it; a barrier of the block follows.
template <class Tile>
ZINC_DEVICE void make_barriers(Tile& tile) {
  using Shape = typename Tile::Shape;
  if (threadIdx.x != 0) return;
  tile.ring.make(Shape::threads, Shape::warps * warp_size);
#pragma unroll
  for (unsigned i = 0; i < Tile::chunks; ++i) phase_make(tile.rows_come[i], 2 * Shape::threads);
  phase_make(tile.verdict, Shape::block_threads);
  tile.limits[0] = 0;
  tile.limits[1] = 0;
}

}  // namespace zinc
