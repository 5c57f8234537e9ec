// Tiles of matrix-matrix products of quantized matrices with int8 tokens by wgmma: exact integer sums, f32 between them
// in the order of the other forms. The first warpgroup of a block copies tokens to shared memory and makes the rows an
// operand there; the others multiply: tokens, which become binary16 in their registers, with the rows.
#pragma once

#include "zinc/logic.cuh"
#include "zinc/mul_mm_int8_exact.cuh"
#include "zinc/mul_mm_tiles.cuh"
#include "zinc/mul_mm_wgmma.cuh"
#include "zinc/quant/q4_k.cuh"
#include "zinc/quant/q5_k.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/q8_0.cuh"
#include "zinc/wgmma.cuh"

namespace zinc {

// A block computes 64 rows, of `matrices` matrices together, for 128 * token_tiles tokens: a multiplying warp all rows
// for token_tiles times 16 tokens. `bringers` warpgroups bring rows and tokens.
template <unsigned token_tiles_, unsigned matrices_, unsigned bringers_ = 1>
struct Int8WgmmaShape {
  static constexpr unsigned token_tiles = token_tiles_;
  static constexpr unsigned matrices = matrices_;
  static constexpr unsigned rows = 64;
  static constexpr unsigned matrix_rows = rows / matrices;
  static constexpr unsigned multipliers = 2;  // warpgroups
  static constexpr unsigned warps = multipliers * warpgroup_threads / warp_size;
  static constexpr unsigned warp_tokens = 16 * token_tiles;
  static constexpr unsigned tokens = warps * warp_tokens;
  static constexpr unsigned bringers = bringers_;
  static constexpr unsigned threads = bringers * warpgroup_threads;  // that bring rows and tokens
  static constexpr unsigned block_threads = threads + multipliers * warpgroup_threads;
  static_assert(matrices <= 2 && bringers <= 2);

  static ZINC_DEVICE unsigned matrix(unsigned row) { return row / matrix_rows; }
  static ZINC_DEVICE unsigned matrix_row(unsigned row) { return row % matrix_rows; }
  static ZINC_DEVICE unsigned warp_token() { return (warp_id() - threads / warp_size) * warp_tokens; }

  // Row 16 i + 4 part + 2 k + e is row 8 (2 i + k) + 2 part + e of the operand: a lane has fours of neighbouring rows,
  // in the order of its sums.
  static constexpr unsigned lane_rows = rows / 4;
};

// Bytes 0 and 2 of a word as binary16 numbers, or bytes 1 and 3: 1024 + 128 + the byte, less 1152.
ZINC_DEVICE uint32_t bytes_to_halves(uint32_t word, unsigned odd) {
  constexpr uint32_t one = 0x3C003C00u;
  constexpr uint32_t minus_1152 = 0xE480E480u;
  return exact_halves(and_xor(odd == 0 ? word : word >> 8, 0x00FF00FFu, 0x64806480u), one, minus_1152);
}

// A stage: 64 columns of the rows, as one operand of the instruction or as the sum of several, and of the tokens, raw.
// Columns of a block of 32 are in the operands' order: number 2 part + e of the eight of piece 2 c + odd is column
// 8 part + 4 c + 2 e + odd.
template <class Shape, unsigned operands = 1>
struct Int8Stage {
  using Rows = WgmmaOperand<Shape::rows>;
  Rows rows[operands];
  uint4 tokens[Shape::tokens][step_columns / 16];

  // Pieces are exchanged, so that lanes that read a column of fours of tokens meet in no bank.
  static ZINC_DEVICE unsigned place(unsigned token, unsigned piece) { return piece ^ (token / 2 % 2 * 2); }

  // The operands of block q of 16 tokens: words of tokens group and group + 8.
  ZINC_DEVICE void token_fragment(uint32_t (&a)[2][4], unsigned first, unsigned q) const {
    const unsigned group = lane_id() / 4;
    const unsigned part = lane_id() % 4;
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const uint4(&token)[step_columns / 16] = tokens[first + group + 8 * h];
      const uint2 two = reinterpret_cast<const uint2*>(&token[place(group, 2 * q + part / 2)])[part % 2];
      const uint32_t words[2] = {two.x, two.y};
#pragma unroll
      for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
        for (unsigned odd = 0; odd < 2; ++odd) a[c][2 * odd + h] = bytes_to_halves(words[c], odd);
      }
    }
  }
};

// A bringing thread's part of the tokens: every 32nd one, 16 of 64 columns.
template <class Shape>
struct Int8TokenCopies {
  static constexpr unsigned pieces = step_columns / 16;
  static constexpr unsigned at_once = Shape::threads / pieces;
  static constexpr unsigned rounds = Shape::tokens / at_once;
  static_assert(rounds * at_once == Shape::tokens);
  const uint8_t* from[rounds];
  uint32_t place;  // in bytes, of the thread's first piece in a stage

  ZINC_DEVICE void start(const Int8Tokens& x, uint32_t first) {
    const unsigned token = threadIdx.x / pieces;
    const unsigned piece = threadIdx.x % pieces;
    place = (token * pieces + Int8Stage<Shape>::place(token, piece)) * 16;
    keep(place);
#pragma unroll
    for (unsigned i = 0; i < rounds; ++i) {
      from[i] =
          reinterpret_cast<const uint8_t*>(x.packed + min(first + i * at_once + token, x.count - 1) * x.packed_pitch) +
          piece * 16;
    }
  }
  template <unsigned operands>
  ZINC_DEVICE void copy(Int8Stage<Shape, operands>& to, unsigned step) const {
    const SharedPlace at = shared_place(&to.tokens) + place;
#pragma unroll
    for (unsigned i = 0; i < rounds; ++i) {
      async_copy<16>(at + i * at_once * sizeof(to.tokens[0]), from[i] + step * step_columns);
    }
  }
  ZINC_DEVICE void advance() {
#pragma unroll
    for (unsigned i = 0; i < rounds; ++i) from[i] += chunk_columns;
  }
};

// The scales of a chunk's tokens, `floats` of each; those of tokens group and group + 8 of 16 are neighbours. What lies
// between blocks keeps the threads that write together out of each other's banks.
template <unsigned floats, class Shape>
struct Int8TokenScales {
  static constexpr unsigned pitch = Shape::tokens * floats + 8;
  alignas(16) float of[chunk_blocks][pitch];

  template <class Scales>
  ZINC_DEVICE void copy(const Int8Tokens& x, uint32_t first, uint32_t chunk) {
    constexpr unsigned at_once = Shape::threads / chunk_blocks;
    static_assert(at_once % 16 == 0);
    uint32_t thread = threadIdx.x;
    forget(thread);
    const unsigned block = thread % chunk_blocks;
    const unsigned token = thread / chunk_blocks;
    const float* const from = x.scales + (chunk * chunk_blocks + block) * Scales::floats;
    const SharedPlace to = shared_place(&of[block][(token / 16 * 16 + token % 8 * 2 + token / 8 % 2) * floats]);
#pragma unroll
    for (unsigned i = 0; i < Shape::tokens / at_once; ++i) {
      const uint64_t entry = min(first + i * at_once + token, x.count - 1) * x.scale_pitch;
      async_copy<4 * floats>(to + i * at_once * floats * 4, from + entry * Scales::floats);
    }
  }
  // Of the lane's two tokens of 16.
  struct alignas(8 * floats) Pair {
    float of[2][floats];
  };
  ZINC_DEVICE Pair pair(unsigned block, unsigned first) const {
    return *reinterpret_cast<const Pair*>(&of[block][(first + lane_id() / 4 * 2) * floats]);
  }
};

// A lane's numbers of one of each row.
template <unsigned rows>
ZINC_DEVICE void read_rows(const float (&from)[rows], float (&to)[rows / 4]) {
#pragma unroll
  for (unsigned i = 0; i < rows / 16; ++i) {
    const float4 four = reinterpret_cast<const float4*>(from)[4 * i + lane_id() % 4];
    to[4 * i] = four.x;
    to[4 * i + 1] = four.y;
    to[4 * i + 2] = four.z;
    to[4 * i + 3] = four.w;
  }
}

// A lane's sums of 64 rows and 16 tokens: [j][2 h + e] of row 2 j + e of its rows and token group + 8 h.
using Int8WgmmaSums = float[Int8WgmmaShape<1, 1>::rows / 8][4];

// The units that the sums of a chunk's rows are counted in, and their ratios to those of the chunk before.
template <class Shape>
struct WgmmaUnits {
  alignas(16) float unit[Shape::rows];
  alignas(16) float ratio[Shape::rows];

  // Before the first chunk sums are zero, and so may be the unit.
  ZINC_DEVICE void store(unsigned row, const BlockUnit& of, float& last_unit, bool stores) {
    if (stores) {
      unit[row] = of.unit;
      ratio[row] = of.ratio(last_unit);
    }
    last_unit = of.unit;
  }
  ZINC_DEVICE void rescale(Int8WgmmaSums& sums) const { scale_rows(sums, ratio); }
  ZINC_DEVICE void finish(Int8WgmmaSums& sums) const { scale_rows(sums, unit); }

 private:
  static ZINC_DEVICE void scale_rows(Int8WgmmaSums& sums, const float (&by)[Shape::rows]) {
    float factors[Shape::lane_rows];
    read_rows(by, factors);
#pragma unroll
    for (unsigned j = 0; j < Shape::rows / 8; ++j) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sums[j][i] *= factors[2 * j + i % 2];
    }
  }
};

// How sums that are counted in units of the rows take products: times the first scale of their token.
struct WgmmaUnitSums {
  template <class Chunk>
  static ZINC_DEVICE void rescale(Int8WgmmaSums& sums, const Chunk& chunk) {
    chunk.units.rescale(sums);
  }
  template <class Chunk>
  static ZINC_DEVICE void finish(Int8WgmmaSums& sums, const Chunk& chunk) {
    chunk.units.finish(sums);
  }
  template <class RowNumbers, class Pair>
  static ZINC_DEVICE void drain(Int8WgmmaSums& sums, const Int8WgmmaSums& products, const RowNumbers&,
                                const Pair& scales) {
#pragma unroll
    for (unsigned j = 0; j < sizeof sums / sizeof sums[0]; ++j) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sums[j][i] = fmaf(products[j][i], scales.of[i / 2][0], sums[j][i]);
    }
  }
};

// The lanes of a bringing warp make 16 of the rows: two share one, each has half of the words of every block. Lanes
// that store together have operand rows that differ in the last three bits. A second warpgroup has the same rows, and
// every other block.
struct WgmmaRowLane {
  static constexpr unsigned warps = warpgroup_threads / warp_size;
  static ZINC_DEVICE unsigned half() { return lane_id() % 2; }
  static ZINC_DEVICE unsigned operand_row() { return warp_id() % warps * 16 + lane_id() / 2; }
  static ZINC_DEVICE unsigned row() {
    return warp_id() % warps * 16 + lane_id() / 4 % 4 * 4 + lane_id() / 16 * 2 + lane_id() / 2 % 2;
  }
  // Whether the lane stores what belongs to the row, not to its blocks.
  static ZINC_DEVICE bool has_row() { return lane_id() % 2 == 0 && warp_id() < warps; }
  // Where there are two, whether the lane's warpgroup has block q of a step.
  static ZINC_DEVICE bool has_block(unsigned q) { return warp_id() / warps == q; }
  // In bytes, of piece 0 of the row in the operand; the others are exchanged by 16 times their number.
  static ZINC_DEVICE uint32_t place() {
    using Operand = WgmmaOperand<Int8WgmmaShape<1, 1>::rows>;
    uint32_t place = operand_row() * sizeof(Operand::pieces[0]) + Operand::place(operand_row(), 0) * 16;
    keep(place);
    return place;
  }
};

// How a format's rows are brought and multiplied: a struct with
//   level         whether matrices are 16-byte aligned
//   operands      how many a row is the sum of
//   bringing_registers, multiplying_registers   of a thread
//   scale_floats  of a token and block
//   Chunk         what is needed of 256 columns beside the stages
//   Shared        what the bringing threads need beside that
//   RowNumbers    what a lane needs of a block for its rows, and what uses it: read, rescale, drain, finish and, with
//                 adds_before, add, which is all that uses it
// and, as a bringing thread's state,
//   make(source)                   once
//   start(shared, source)          before a tile
//   store_chunk(shared, chunk, more)   before the stages of a chunk
//   store(shared, stage, step), stored(shared, step, more)   what a stage needs, and afterwards
template <class Format, class Shape>
struct WgmmaRows;

// q4_K and q5_K: quants times their 6-bit scales are whole numbers below 2048, and their sums over a block below 2^23.
template <class Format, class Shape>
struct WgmmaKRows : WgmmaUnitSums {
  static_assert(Shape::bringers == 1);
  static constexpr bool level = true;
  static constexpr unsigned operands = 1;
  static constexpr unsigned bringing_registers = 88;
  static constexpr unsigned multiplying_registers = 208;
  static constexpr unsigned scale_floats = 2;
  static constexpr bool fifth = Format::block_bytes > Q4K::block_bytes;
  static constexpr unsigned quants_at = fifth ? 48 : 16;
  static constexpr unsigned high_at = 16;
  using Stage = Int8Stage<Shape>;
  using Scales = Int8TokenScales<scale_floats, Shape>;

  struct Chunk {
    alignas(16) float minimum[chunk_blocks][Shape::rows];
    WgmmaUnits<Shape> units;
    Scales scales;
  };

  struct Shared {
    ZINC_DEVICE void make() {}
  };

  const uint8_t* from;
  uint4 head;
  uint4 high;
  uint4 quants[chunk_steps];
  uint32_t factors[2];  // the 6-bit scales
  float last_unit;
  uint32_t place;

  ZINC_DEVICE void start(Shared&, const RowSource<Format, Shape>& source) {
    place = WgmmaRowLane::place() + WgmmaRowLane::half() * 8;
    from = source.base(WgmmaRowLane::row()) + source.row(WgmmaRowLane::row()) * row_bytes<Format>(source.k);
    last_unit = 0.0f;
    if (WgmmaRowLane::half() == 0) prefetch_l2(from, static_cast<uint32_t>(row_bytes<Format>(source.k)));
    load();
  }
  ZINC_DEVICE void store_chunk(Shared&, Chunk& to, bool) {
    const unsigned row = WgmmaRowLane::row();
    const unsigned half = WgmmaRowLane::half();
    const uint32_t words[4] = {head.x, head.y, head.z, head.w};
    const KUnit unit(words);
    to.units.store(row, unit, last_unit, WgmmaRowLane::has_row());
    const unsigned first = half * (chunk_blocks / 2);
    const uint32_t minimums = half == 0 ? unit.numbers.minimums[0] : unit.numbers.minimums[1];
#pragma unroll
    for (unsigned i = 0; i < chunk_blocks / 2; ++i) to.minimum[first + i][row] = unit.minimum_of(minimums, i);
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) factors[i] = unit.is_zero ? 0 : unit.numbers.scales[i];
  }
  ZINC_DEVICE void store(Shared&, Stage& to, unsigned step) const {
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(&to.rows);
    const uint32_t words[4] = {quants[step].x, quants[step].y, quants[step].z, quants[step].w};
    const uint32_t high_words[4] = {high.x, high.y, high.z, high.w};
    const uint32_t factor[2] = {k_factor(factors, 2 * step), k_factor(factors, 2 * step + 1)};
#pragma unroll
    for (unsigned q = 0; q < step_blocks; ++q) {
#pragma unroll
      for (unsigned piece = 0; piece < 4; ++piece) {
        uint32_t two[2];
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          const unsigned w = 2 * i + piece / 2;
          const uint32_t quants = k_quants<fifth>(words[w], high_words[w], step, q, piece % 2);
          two[i] = exact_halves(quants, factor[q], 0);
        }
        *reinterpret_cast<uint2*>(bytes + (place ^ ((4 * q + piece) * 16))) = make_uint2(two[0], two[1]);
      }
    }
  }
  // All loads of a chunk together, as wgmma_written() waits for loads, too.
  ZINC_DEVICE void stored(Shared&, unsigned step, bool more) {
    if (step + 1 != chunk_steps || !more) return;
    from += Format::block_bytes;
    load();
  }

  using RowNumbers = float[Shape::lane_rows];
  static ZINC_DEVICE void read(RowNumbers& minimums, const Chunk& chunk, unsigned block) {
    read_rows(chunk.minimum[block], minimums);
  }
  static constexpr bool adds_before = true;
  static ZINC_DEVICE void add(Int8WgmmaSums& sums, const RowNumbers& minimums, const typename Scales::Pair& scales) {
#pragma unroll
    for (unsigned j = 0; j < Shape::rows / 8; ++j) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        sums[j][i] = fmaf(minimums[2 * j + i % 2], scales.of[i / 2][1], sums[j][i]);
      }
    }
  }

 private:
  ZINC_DEVICE void load() {
    head = __ldg(reinterpret_cast<const uint4*>(from));
    if constexpr (fifth) high = __ldg(reinterpret_cast<const uint4*>(from + high_at) + WgmmaRowLane::half());
#pragma unroll
    for (unsigned step = 0; step < chunk_steps; ++step) {
      quants[step] = __ldg(reinterpret_cast<const uint4*>(from + quants_at + step * 32) + WgmmaRowLane::half());
    }
  }
};
template <class Shape>
struct WgmmaRows<Q4K, Shape> : WgmmaKRows<Q4K, Shape> {
  static ZINC_DEVICE WgmmaRows make(const RowSource<Q4K, Shape>&) { return {}; }
};
template <class Shape>
struct WgmmaRows<Q5K, Shape> : WgmmaKRows<Q5K, Shape> {
  static ZINC_DEVICE WgmmaRows make(const RowSource<Q5K, Shape>&) { return {}; }
};

// What the bringing threads of formats share whose rows are not aligned for wide loads: raw chunks.
template <bool level, class Format, class Shape>
struct WgmmaRawRows {
  RawRows<level, Format, Shape> raw[2];
  Ring<2> ring;

  // Every thread arrives when its copies have, too.
  ZINC_DEVICE void make() { ring.make(2 * Shape::threads, Shape::threads); }
  ZINC_DEVICE void copy(const RowSource<Format, Shape>& source, uint32_t chunk, uint32_t number) {
    ring.wait_empty(number);
    raw[number % 2].copy(source, chunk);
    phase_arrive(ring.full[number % 2]);
    phase_arrive_after_copies(ring.full[number % 2]);
  }
};

// What formats share whose rows come by way of these: the state of a bringing thread.
template <bool level_, class Format, class Shape>
struct WgmmaCopiedRows {
  static constexpr bool level = level_;
  static constexpr unsigned scale_floats = 1;
  using Source = RowSource<Format, Shape>;
  using Scales = Int8TokenScales<scale_floats, Shape>;
  using Shared = WgmmaRawRows<level, Format, Shape>;

  Source source;
  uint32_t chunk;   // of the tile
  uint32_t number;  // of all chunks
  uint32_t place;

  ZINC_DEVICE void start(Shared& shared, const Source& of) {
    source.first = of.first;
    place = WgmmaRowLane::place() + WgmmaRowLane::half() * 8;
    chunk = 0;
    shared.copy(source, 0, number);
  }
  // Starts the next chunk's copies, and waits for this one's.
  ZINC_DEVICE void next_chunk(Shared& shared, bool more) {
    if (more) shared.copy(source, chunk + 1, number + 1);
    shared.ring.wait_full(number);
  }
  ZINC_DEVICE void stored(Shared& shared, unsigned step, bool) {
    if (step + 1 != chunk_steps) return;
    phase_arrive(shared.ring.empty[number % 2]);
    ++chunk;
    ++number;
  }

  static constexpr bool adds_before = false;
};

// q8_0: quants are whole numbers in binary16.
template <class Shape>
struct WgmmaRows<Q8_0, Shape> : WgmmaCopiedRows<true, Q8_0, Shape> {
  using Base = WgmmaCopiedRows<true, Q8_0, Shape>;
  using Scales = typename Base::Scales;
  using Shared = typename Base::Shared;
  using Base::number;
  using Base::place;
  static_assert(Shape::bringers == 1);
  static constexpr unsigned bringing_registers = 88;
  static constexpr unsigned multiplying_registers = 208;
  static constexpr unsigned operands = 1;
  using Stage = Int8Stage<Shape>;

  struct Chunk {
    alignas(16) float scale[chunk_blocks][Shape::rows];
    Scales scales;
  };

  static ZINC_DEVICE WgmmaRows make(const RowSource<Q8_0, Shape>& source) { return {{source, 0, 0, 0}}; }

  ZINC_DEVICE void store_chunk(Shared& shared, Chunk& to, bool more) {
    Base::next_chunk(shared, more);
    const uint8_t* const raw = shared.raw[number % 2].of[WgmmaRowLane::row()];
    const unsigned first = WgmmaRowLane::half() * (chunk_blocks / 2);
#pragma unroll
    for (unsigned i = 0; i < chunk_blocks / 2; ++i) {
      const uint8_t* const d = raw + (first + i) * Q8_0::block_bytes;
      to.scale[first + i][WgmmaRowLane::row()] = half_to_float(*reinterpret_cast<const uint16_t*>(d));
    }
  }
  ZINC_DEVICE void store(const Shared& shared, Stage& to, unsigned step) const {
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(&to.rows);
    const uint8_t* const raw = shared.raw[number % 2].of[WgmmaRowLane::row()] + WgmmaRowLane::half() * 16;
#pragma unroll
    for (unsigned q = 0; q < step_blocks; ++q) {
      uint32_t words[4];
      shared_words(raw, (step * step_blocks + q) * Q8_0::block_bytes + 2, words);
#pragma unroll
      for (unsigned piece = 0; piece < 4; ++piece) {
        *reinterpret_cast<uint2*>(bytes + (place ^ ((4 * q + piece) * 16))) =
            make_uint2(bytes_to_halves(words[piece / 2], piece % 2), bytes_to_halves(words[2 + piece / 2], piece % 2));
      }
    }
  }
  using RowNumbers = float[Shape::lane_rows];
  static ZINC_DEVICE void read(RowNumbers& scales, const Chunk& chunk, unsigned block) {
    read_rows(chunk.scale[block], scales);
  }
  static ZINC_DEVICE void rescale(Int8WgmmaSums&, const Chunk&) {}
  static ZINC_DEVICE void finish(Int8WgmmaSums&, const Chunk&) {}
  static ZINC_DEVICE void drain(Int8WgmmaSums& sums, const Int8WgmmaSums& products, const RowNumbers& row_scales,
                                const typename Scales::Pair& scales) {
#pragma unroll
    for (unsigned j = 0; j < Shape::rows / 8; ++j) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        sums[j][i] = fmaf(scales.of[i / 2][0] * row_scales[2 * j + i % 2], products[j][i], sums[j][i]);
      }
    }
  }
};

// q6_K: quants times scales have 12 bits and a sign, so that a row is the sum of two operands: the quants times the
// scale's upper five bits, and times its lower three.
template <class Shape>
struct WgmmaRows<Q6K, Shape> : WgmmaCopiedRows<false, Q6K, Shape>, WgmmaUnitSums {
  using Base = WgmmaCopiedRows<false, Q6K, Shape>;
  using Scales = typename Base::Scales;
  using Shared = typename Base::Shared;
  using Base::chunk;
  using Base::number;
  using Base::place;
  using Base::source;
  static_assert(Shape::bringers == 2);
  static constexpr unsigned bringing_registers = 64;
  static constexpr unsigned multiplying_registers = 192;
  static constexpr unsigned operands = 2;
  using Stage = Int8Stage<Shape, operands>;

  struct Chunk {
    WgmmaUnits<Shape> units;
    Scales scales;
  };
  float last_unit;
  bool is_zero;

  static ZINC_DEVICE WgmmaRows make(const RowSource<Q6K, Shape>& source) {
    return {{source, 0, 0, 0}, {}, 0.0f, false};
  }

  ZINC_DEVICE void start(Shared& shared, const RowSource<Q6K, Shape>& of) {
    Base::start(shared, of);
    last_unit = 0.0f;
  }
  ZINC_DEVICE void store_chunk(Shared& shared, Chunk& to, bool more) {
    Base::next_chunk(shared, more);
    const unsigned row = WgmmaRowLane::row();
    const auto& raw = shared.raw[number % 2];
    const Q6Unit unit(raw.of[row] + raw.shift(source, row, chunk));
    is_zero = unit.is_zero;
    to.units.store(row, unit, last_unit, WgmmaRowLane::has_row());
  }
  ZINC_DEVICE void store(const Shared& shared, Stage& to, unsigned step) const {
    constexpr unsigned high_at = 128;
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(&to.rows);
    const unsigned row = WgmmaRowLane::row();
    const auto& raw = shared.raw[number % 2];
    const unsigned half = WgmmaRowLane::half();
    const unsigned block = raw.shift(source, row, chunk);
    const unsigned at = block + half * 16;
    const unsigned upper = step % 2;  // whether the quants' lower bits are the upper four of a byte
    uint32_t high[4];
    shared_words(raw.of[row], at + high_at + step / 2 * 32, high);
#pragma unroll
    for (unsigned q = 0; q < step_blocks; ++q) {
      if (!WgmmaRowLane::has_block(q)) continue;
      uint32_t low[4];
      shared_words(raw.of[row], at + step / 2 * 64 + q * 32, low);
      const uint32_t scale = raw.of[row][block + Q6Unit::scales_at + (step * step_blocks + q) * 2 + half];
      const Factors factors[operands] = {upper_factors(scale), lower_factors(scale)};
#pragma unroll
      for (unsigned piece = 0; piece < 4; ++piece) {
        uint32_t numbers[2];  // 1024 + 32 + the quant
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          const unsigned w = 2 * i + piece / 2;
          const int left = 4 - 4 * static_cast<int>(upper) - 2 * static_cast<int>(q);
          const uint32_t bits = left >= 0 ? high[w] << left : high[w] >> -left;
          const uint32_t quants = ((low[w] >> (4 * upper)) & 0x0F0F0F0Fu) | (bits & 0x30303030u);
          numbers[i] = __byte_perm(quants, 0x64646464u, piece % 2 == 0 ? 0x4240u : 0x4341u);
        }
#pragma unroll
        for (unsigned i = 0; i < operands; ++i) {
          uint8_t* const operand = bytes + i * sizeof(typename Stage::Rows);
          *reinterpret_cast<uint2*>(operand + (place ^ ((4 * q + piece) * 16))) =
              make_uint2(exact_halves(numbers[0], factors[i].factor, factors[i].offset),
                         exact_halves(numbers[1], factors[i].factor, factors[i].offset));
        }
      }
    }
  }
  struct RowNumbers {};
  static ZINC_DEVICE void read(RowNumbers&, const Chunk&, unsigned) {}

 private:
  // A part of a scale in binary16, twice, and -1056 times it.
  struct Factors {
    uint32_t factor;
    uint32_t offset;
  };
  ZINC_DEVICE Factors factors_of(uint32_t bits, uint32_t unit, uint32_t bias) const {
    constexpr uint32_t half_minus_1056 = 0xE420E420u;
    constexpr uint32_t half_1024 = 0x64006400u;
    const uint32_t factor = is_zero ? 0 : exact_halves(bits * 0x10001u | half_1024, unit, bias);
    return {factor, exact_halves(factor, half_minus_1056, 0)};
  }
  ZINC_DEVICE Factors upper_factors(uint32_t scale) const {
    return factors_of(scale >> 3 ^ 16, 0x3C003C00u, 0xE410E410u);  // times 1, less 1024 + 16
  }
  ZINC_DEVICE Factors lower_factors(uint32_t scale) const {
    return factors_of(scale & 7, 0x30003000u, 0xD800D800u);  // times 1/8, less 128
  }
};

template <class Format, class Shape>
struct WgmmaTile {
  using Rows = WgmmaRows<Format, Shape>;
  static constexpr unsigned alignment = 1024;
  static constexpr unsigned stages = 4;
  static constexpr unsigned chunks = 2;
  typename Rows::Stage stage[stages];
  typename Rows::Chunk chunk[chunks];
  typename Rows::Shared shared;
  Ring<stages> stage_ring;
  Ring<chunks> chunk_ring;

  ZINC_DEVICE void make_rings() {
    shared.make();
    // Every thread arrives when its copies have, too.
    constexpr unsigned fillers = 2 * Shape::threads;
    stage_ring.make(fillers, Shape::warps * warp_size);
    chunk_ring.make(fillers, Shape::warps * warp_size);
  }
};

// Brings the rows and tokens of a tile; stage and chunk count those of all tiles.
template <class Scales, class Format, class Shape>
ZINC_DEVICE void bring_tile(WgmmaTile<Format, Shape>& tile, const RowSource<Format, Shape>& source, const Int8Tokens& x,
                            uint32_t token, WgmmaRows<Format, Shape>& rows, uint32_t& stage, uint32_t& chunk) {
  using Tile = WgmmaTile<Format, Shape>;
  const uint32_t chunks = source.k / chunk_columns;
  Int8TokenCopies<Shape> tokens;
  rows.start(tile.shared, source);
  tokens.start(x, token);
#pragma unroll 1
  for (uint32_t number = 0; number < chunks; ++number) {
    const bool more = number + 1 < chunks;
    auto& table = tile.chunk[chunk % Tile::chunks];
    tile.chunk_ring.wait_empty(chunk);
    table.scales.template copy<Scales>(x, token, number);
    phase_arrive_after_copies(tile.chunk_ring.full[chunk % Tile::chunks]);
    rows.store_chunk(tile.shared, table, more);
    tile.chunk_ring.filled(chunk);
    ++chunk;
#pragma unroll
    for (unsigned step = 0; step < chunk_steps; ++step) {
      auto& to = tile.stage[stage % Tile::stages];
      tile.stage_ring.wait_empty(stage);
      rows.store(tile.shared, to, step);
      wgmma_written();
      tile.stage_ring.filled(stage);
      tokens.copy(to, step);
      phase_arrive_after_copies(tile.stage_ring.full[stage % Tile::stages]);
      rows.stored(tile.shared, step, more);
      ++stage;
    }
    tokens.advance();
  }
}

// Multiplies what bring_tile brings. While the products of a block and of 16 tokens of a warp are scaled and added, the
// next ones are being formed; only between chunks none are (ptxas does not follow products that are under way around a
// loop).
template <class Format, class Shape, class Finish>
ZINC_DEVICE void multiply_tile(WgmmaTile<Format, Shape>& tile, uint32_t k, uint32_t row, uint32_t token,
                               uint32_t& stage, uint32_t& chunk, Finish finish) {
  using Tile = WgmmaTile<Format, Shape>;
  using Rows = typename Tile::Rows;
  constexpr unsigned tiles = Shape::token_tiles;
  constexpr unsigned pieces = chunk_blocks * tiles;
  constexpr unsigned stage_pieces = step_blocks * tiles;
  // Operands are made a piece before they are needed, also those of the next chunk.
  constexpr unsigned ready = 3;
  constexpr unsigned places = 4;
  static_assert(pieces % places == 0);
  const unsigned first = Shape::warp_token();

  Int8WgmmaSums sum[tiles] = {};
  Int8WgmmaSums products[2] = {};  // of piece p in p % 2
  uint32_t a[places][2][4];
  typename Rows::RowNumbers numbers;
  typename Rows::Scales::Pair scales[2];
  const auto block_of = [](unsigned p) { return p / tiles; };
  const auto stage_of = [&](unsigned p) -> auto& { return tile.stage[(stage + p / stage_pieces) % Tile::stages]; };
  const auto chunk_of = [&](unsigned p) -> auto& { return tile.chunk[(chunk + p / pieces) % Tile::chunks]; };
  const auto decode = [&](unsigned p) {
    if (p % stage_pieces == 0) tile.stage_ring.wait_full(stage + p / stage_pieces);
    stage_of(p).token_fragment(a[p % places], first + p % tiles * 16, block_of(p) % step_blocks);
  };
  const auto issue = [&](unsigned p) {
    wgmma_begin();
#pragma unroll
    for (unsigned c = 0; c < 2; ++c) {
#pragma unroll
      for (unsigned i = 0; i < Rows::operands; ++i) {
        const unsigned column = block_of(p) % step_blocks * 2 + c;
        wgmma_half<Shape::rows>(products[p % 2], a[p % places][c], wgmma_columns(stage_of(p).rows[i], 0, column),
                                c + i != 0);
      }
    }
    wgmma_commit();
  };
  const auto read_numbers = [&](unsigned p) {
    if (p == pieces) tile.chunk_ring.wait_full(chunk + 1);
    if (p % tiles == 0) Rows::read(numbers, chunk_of(p), block_of(p) % chunk_blocks);
  };
  const auto read_scales = [&](unsigned p) {
    scales[p % 2] = chunk_of(p).scales.pair(block_of(p) % chunk_blocks, first + p % tiles * 16);
  };
#pragma unroll
  for (unsigned p = 0; p < ready; ++p) decode(p);
  tile.chunk_ring.wait_full(chunk);
  read_numbers(0);
  read_scales(0);
#pragma unroll 1
  for (uint32_t left = k / chunk_columns; left > 0; --left) {
    const bool more = left > 1;
    const auto& here = tile.chunk[chunk % Tile::chunks];
    issue(0);
    issue(1);
#pragma unroll
    for (unsigned p = 0; p < pieces; ++p) {
      const auto read_next = [&] {
        if (p + 1 < pieces || more) read_numbers(p + 1);
      };
      if (p < tiles) Rows::rescale(sum[p], here);
      if (p + 1 < pieces) {
        wgmma_wait_for<1>(products[p % 2]);
      } else {
        wgmma_wait_for<0>(products[p % 2]);
      }
      if (p % stage_pieces == stage_pieces - 1) {
        tile.stage_ring.emptied(stage + p / stage_pieces);
      }
      if constexpr (Rows::adds_before) Rows::add(sum[p % tiles], numbers, scales[p % 2]);
      Rows::drain(sum[p % tiles], products[p % 2], numbers, scales[p % 2]);
      // Before the next product is started, which takes its time.
      read_next();
      if (p + 1 < pieces || more) read_scales(p + 1);
      if (p + 2 < pieces) issue(p + 2);
      if (p + ready < pieces || more) decode(p + ready);
    }
    if (!more) {
#pragma unroll
      for (unsigned i = 0; i < tiles; ++i) Rows::finish(sum[i], here);
    }
    tile.chunk_ring.emptied(chunk);
    ++chunk;
    stage += chunk_steps;
  }

  constexpr unsigned fours = Shape::matrix_rows / 16;
#pragma unroll
  for (unsigned i = 0; i < tiles; ++i) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      float sums[4 * fours][Shape::matrices];
#pragma unroll
      for (unsigned r = 0; r < 4 * fours; ++r) {
#pragma unroll
        for (unsigned matrix = 0; matrix < Shape::matrices; ++matrix) {
          sums[r][matrix] = sum[i][2 * matrix * fours + r / 2][2 * h + r % 2];
        }
      }
      finish(row + lane_id() % 4 * 4, token + first + 16 * i + lane_id() / 4 + 8 * h, sums);
    }
  }
}

// The block's tiles of m rows and all tokens: finish(row, token, sums[r][matrix]) with the sums of fours of rows, 16
// apart. k is a multiple of 256, and tokens and rows are 16-byte aligned. All threads of the block call it.
template <class Scales, unsigned bytes, class Format, class Shape, class Finish>
ZINC_DEVICE void wgmma_tiles(const uint8_t* const (&matrix)[Shape::matrices], const Int8Tokens& x, uint32_t m,
                             uint32_t k, Finish finish) {
  using Tile = WgmmaTile<Format, Shape>;
  static_assert(sizeof(Tile) + Tile::alignment - 16 <= bytes, "the tile is in shared memory");
  using Rows = typename Tile::Rows;
  // The launch gives every thread as many as there are for all.
  constexpr unsigned registers = 65536 / Shape::block_threads / 8 * 8;
  static_assert(Shape::bringers * Rows::bringing_registers + Shape::multipliers * Rows::multiplying_registers <=
                (Shape::bringers + Shape::multipliers) * registers);
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  const uint32_t past = static_cast<uint32_t>(reinterpret_cast<uint64_t>(shared)) % Tile::alignment;
  Tile& tile = *reinterpret_cast<Tile*>(shared + (Tile::alignment - past) % Tile::alignment);
  if (threadIdx.x == 0) tile.make_rings();
  __syncthreads();
  uint32_t stage = 0;
  uint32_t chunk = 0;
  if (threadIdx.x < Shape::threads) {
    give_registers<Rows::bringing_registers>();
    auto rows = Rows::make(RowSource<Format, Shape>{matrix, m, k, 0});
    for_tiles<Shape::matrix_rows, Shape::tokens>(m, x.count, [&](uint32_t row, uint32_t token) {
      bring_tile<Scales>(tile, RowSource<Format, Shape>{matrix, m, k, row}, x, token, rows, stage, chunk);
    });
  } else {
    take_registers<Rows::multiplying_registers>();
    for_tiles<Shape::matrix_rows, Shape::tokens>(
        m, x.count, [&](uint32_t row, uint32_t token) { multiply_tile(tile, k, row, token, stage, chunk, finish); });
  }
}

}  // namespace zinc
