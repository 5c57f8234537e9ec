// A tile of a matrix-matrix product by the f16 tensor cores, with f32 results: the quants of a weight are whole numbers
// that binary16 holds exactly, an activation is the sum of two binary16 numbers, products and sums are f32, and the
// scales of the weights stay in f32 outside the products.
#pragma once

#include "zinc/dmmv_rows.cuh"
#include "zinc/mma.cuh"
#include "zinc/mul_mm_rows.cuh"
#include "zinc/quant/k_scales.cuh"

namespace zinc {

constexpr bool has_half_mma =
#ifdef ZINC_EMULATOR
    true;
#else
    ZINC_ARCH >= 80;
#endif

// A block computes `rows` rows, of `matrices` matrices together, for `tokens` tokens; a warp `warp_rows` of the rows
// for 32.
template <unsigned rows_, unsigned tokens_, unsigned threads_, unsigned matrices_ = 1, unsigned warp_rows_ = 64>
struct HalfShape {
  static constexpr unsigned rows = rows_;
  static constexpr unsigned tokens = tokens_;
  static constexpr unsigned threads = threads_;
  static constexpr unsigned matrices = matrices_;
  static constexpr unsigned matrix_rows = rows / matrices;
  static constexpr unsigned step = 64;
  static constexpr unsigned warp_rows = warp_rows_;
  static constexpr unsigned warp_tokens = 32;
  static constexpr unsigned row_tiles = warp_rows / 16;
  static constexpr unsigned token_tiles = warp_tokens / 8;
  static constexpr unsigned column_tiles = step / 16;
  // Whether the warps of a block take turns: there are two for every part of a multiprocessor.
  static constexpr bool in_turns = threads >= 8 * warp_size;
  static_assert(rows % warp_rows == 0 && tokens % warp_tokens == 0);
  static_assert(rows / warp_rows * (tokens / warp_tokens) * warp_size == threads, "every output has one thread");

  static ZINC_DEVICE unsigned warp_row() { return warp_id() % (rows / warp_rows) * warp_rows; }
  static ZINC_DEVICE unsigned warp_token() { return warp_id() / (rows / warp_rows) * warp_tokens; }
  // A warp's rows are divided among the matrices: which matrix, and which of its rows in the block, row r is.
  static constexpr unsigned share = warp_rows / matrices;
  static ZINC_DEVICE unsigned matrix(unsigned r) { return r % warp_rows / share; }
  static ZINC_DEVICE unsigned matrix_row(unsigned r) { return r / warp_rows * share + r % share; }
};

// Activations are multiplied by this power of two, so that what the second of the two numbers cannot hold is small
// against what the contracts allow any output, and values up to 2047 still fit the first.
constexpr float half_scale = 32.0f;
// Below this a scaled activation may lose more than 2^-20 of its value.
constexpr float half_small = 0x1p-5f;
// The most that a scaled activation loses below it.
constexpr float half_loss = 0x1p-25f;
// As many may lose it, times the largest weight: they then lose nine tenths of the 1e-6 that the contracts allow any
// output, whatever its terms are. What others lose is far below the 1e-5 of their sum that they allow, too.
constexpr float half_allowed = 0.9e-6f * half_scale / half_loss;

// How the quants of a word become whole numbers in binary16: bytes that count from -bias, exchanged first where they
// are signed.
template <class Quants>
struct HalfQuants;
template <unsigned bias_>
struct HalfQuants<BiasedQuants<bias_>> {
  static constexpr unsigned bias = bias_;
  static constexpr uint32_t flip = 0;
};
template <>
struct HalfQuants<SignedQuants> {
  static constexpr unsigned bias = 128;
  static constexpr uint32_t flip = 0x80808080u;
};

constexpr uint32_t both_halves = 0x00010001u;
constexpr uint32_t half_one = 0x3C00u * both_halves;
// The bytes below these bits make 1024 + byte.
constexpr uint32_t half_1024 = 0x6400u * both_halves;
constexpr uint32_t half_minus_1024 = 0xE400u * both_halves;

// A whole number below 1024 in both halves.
ZINC_DEVICE uint32_t whole_halves(uint32_t number) {
  return exact_halves((number * both_halves) | half_1024, half_one, half_minus_1024);
}

// Bytes 0 and 2, and bytes 1 and 3, of four quants times a whole number: (1024 + byte) * factor + offset.
ZINC_DEVICE uint2 quants_to_halves(uint32_t word, uint32_t factor, uint32_t offset) {
  constexpr uint32_t even = 0x00FF00FFu;
  return make_uint2(exact_halves((word & even) | half_1024, factor, offset),
                    exact_halves(((word >> 8) & even) | half_1024, factor, offset));
}

// The fragments of 16 rows or 8 tokens by 16 columns: lane 4 g + p of the instruction owns columns 4 p .. 4 p + 3 of
// its rows or token, in the order 0, 2, 1, 3. The place of its 16 bytes is permuted, so that neither those who store
// nor those who read meet in a bank.
ZINC_DEVICE unsigned fragment_place(unsigned group, unsigned part, unsigned column_tile) {
  return (group * 4 + (part ^ (group / 2))) ^ (column_tile % 2 * 4);
}

// What is shared by a block of 256 columns in a format with minimums.
template <class Shape, bool used>
struct HalfBlock {
  float factor[Shape::rows];
  float minimum_factor[Shape::rows];
  uint32_t minimums[Shape::rows][4];
  uint32_t sums[Shape::tokens][8];  // four words of first numbers, then of second ones
};
template <class Shape>
struct HalfBlock<Shape, false> {};

template <class Format_, class Shape_>
struct HalfTile {
  using Format = Format_;
  using Shape = Shape_;
  // Where a minimum is subtracted, a factor of 256 columns is shared by all quants that are multiplied by the 6-bit
  // scales of their 32, and the minimums are products of their own: of 6-bit numbers with the sums of 32 activations.
  static constexpr bool by_blocks = Format::has_minimum;
  static constexpr unsigned scales = by_blocks ? 1 : Shape::step / Format::scale_columns;

  struct Step {
    alignas(16) uint4 a[Shape::rows / 16][Shape::column_tiles][warp_size];   // rows group and group + 8 in turn
    alignas(16) uint4 b[Shape::tokens / 8][Shape::column_tiles][warp_size];  // first and second numbers
    alignas(16) float scale[scales][by_blocks ? 4 : Shape::rows];
  };
  Step step[2];
  HalfBlock<Shape, by_blocks> block[2];
};

// A thread's weights on their way through the registers. A format whose units reach over more than a step keeps them
// for two.
template <bool wide, class Format, class Shape>
struct HalfRows {
  using Tile = HalfTile<Format, Shape>;
  using Quants = HalfQuants<typename Format::Quants>;
  static constexpr unsigned period =
      2 * Format::run_distance > Shape::step ? 2 * Format::run_distance / Shape::step : 1;
  static constexpr unsigned row_units = period * Shape::step / unit_columns;
  static constexpr unsigned count = Shape::rows * row_units / Shape::threads;
  static constexpr unsigned block_units = Format::block_columns / unit_columns;
  static constexpr unsigned run_bit = Format::run_distance / run_columns;
  static_assert(count * Shape::threads == Shape::rows * row_units && Shape::threads % row_units == 0);
  static_assert(period <= 2);

  typename Format::Unit unit[count];
  float largest = 0.0f;  // weight, in absolute value, or more

  static ZINC_DEVICE unsigned place() { return threadIdx.x % row_units; }
  static ZINC_DEVICE unsigned row(unsigned i) { return (i * Shape::threads + threadIdx.x) / row_units; }

  ZINC_DEVICE void load(const uint8_t* const (&from)[Shape::matrices], uint32_t m, uint32_t k, uint32_t first_row,
                        uint32_t step) {
    if (step % period != 0) return;
    forget(first_row);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      uint32_t at = step / period * row_units + place();
      if constexpr (Format::block_columns % Shape::step != 0) at = min(at, k / unit_columns - 1);
      const uint8_t* base = from[0];
      if constexpr (Shape::matrices == 2) base = Shape::matrix(row(i)) == 0 ? from[0] : from[1];
      const uint8_t* const line =
          base + uint64_t{min(first_row + Shape::matrix_row(row(i)), m - 1)} * row_bytes<Format>(k);
      unit[i] = Format::template load<wide>(line + uint64_t{at / block_units} * Format::block_bytes, at % block_units);
    }
  }

  ZINC_DEVICE void store(Tile& tile, uint32_t step) {
    auto& to = tile.step[step % 2];
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      uint32_t scale_bytes = 0;
      if constexpr (Tile::by_blocks) {
        uint32_t minimum_bytes;
        k_scale_bytes(unit[i].head, unit[i].pair, scale_bytes, minimum_bytes);
        if (place() == 0) {
          auto& block = tile.block[step / 4 % 2];
          const float d = half_to_float(static_cast<uint16_t>(unit[i].head[0]));
          const float dmin = half_to_float(static_cast<uint16_t>(unit[i].head[0] >> 16));
          block.factor[row(i)] = d / half_scale;
          block.minimum_factor[row(i)] = dmin / half_scale;
          const uint32_t two = (minimum_bytes & 0xFFu) | (minimum_bytes & 0xFF00u) << 8;
          block.minimums[row(i)][step % 4] = exact_halves(two | half_1024, half_one, half_minus_1024);
          constexpr float top = 63.0f * 31.0f;
          largest = fmaxf(largest, fabsf(d) * top + fabsf(dmin) * 63.0f);
        }
      } else {
        const auto scales = unit[i].scales();
        constexpr float top = Quants::bias;  // of a quant, in absolute value
        static_assert(top > 0.0f);
#pragma unroll
        for (unsigned run = 0; run < 2; ++run) {
          largest = fmaxf(largest, fabsf(scales.scale[run]) * top);
          if (period == 2 ? run != step % 2 : run % (Format::scale_columns / run_columns) != 0) continue;
          const unsigned at = column_tile(run) * run_columns / Format::scale_columns;
          to.scale[at][row(i)] = scales.scale[run] / half_scale;
        }
      }
      uint32_t group = row(i) % 8;
      if constexpr (Shape::warp_rows < 64) forget(group);  // more warps, with fewer registers
      const unsigned side = row(i) / 8 % 2;
#pragma unroll
      for (unsigned run = 0; run < 2; ++run) {
        if (period == 2 && run != step % 2) continue;
        uint32_t factor = half_one;
        uint32_t offset = half_minus_1024 + Quants::bias * both_halves;  // -1024 - bias: the spacing there is 1
        if constexpr (Tile::by_blocks) {
          factor = whole_halves((scale_bytes >> (8 * run)) & 0xFFu);
          offset = exact_halves(factor, half_minus_1024, 0);
        }
        auto& fragments = to.a[row(i) / 16][column_tile(run)];
#pragma unroll
        for (unsigned w = 0; w < run_words; ++w) {
          const uint2 halves = quants_to_halves(unit[i].word(run, w) ^ Quants::flip, factor, offset);
          uint32_t* const to =
              reinterpret_cast<uint32_t*>(&fragments[fragment_place(group, w, column_tile(run))]) + side;
          to[0] = halves.x;
          to[2] = halves.y;
        }
      }
    }
  }

 private:
  // Which 16 columns of the step a run is.
  static ZINC_DEVICE unsigned column_tile(unsigned run) {
    return period == 2 ? place() : place() / run_bit * 2 * run_bit + place() % run_bit + run * run_bit;
  }

  // The 6-bit scales and minimums of sub-blocks 2 pair and 2 pair + 1 in the two lowest bytes.
  static ZINC_DEVICE void k_scale_bytes(const uint32_t (&head)[4], unsigned pair, uint32_t& scales,
                                        uint32_t& minimums) {
    const bool upper = pair >= 2;
    scales = upper ? (head[3] & 0x0F0F0F0Fu) | ((head[1] >> 2) & 0x30303030u) : head[1] & 0x3F3F3F3Fu;
    minimums = upper ? ((head[3] >> 4) & 0x0F0F0F0Fu) | ((head[2] >> 2) & 0x30303030u) : head[2] & 0x3F3F3F3Fu;
    scales >>= 16 * (pair & 1);
    minimums >>= 16 * (pair & 1);
  }
};

// A thread's activations on their way through the registers: four columns of several tokens. Tokens past the end are
// replaced by the last one. Nothing here depends on the values before they are stored, and no branch surrounds a load:
// all loads of a step are in flight together.
template <bool aligned, class Format, class Shape>
struct HalfTokens {
  using Tile = HalfTile<Format, Shape>;
  static constexpr unsigned fours = Shape::step / 4;
  static constexpr unsigned tokens_at_once = Shape::threads / fours;
  // Many tokens pass in two phases, while one and the other half of a step is multiplied: they need fewer registers.
  static constexpr unsigned phases = Shape::tokens / tokens_at_once > 4 / Shape::matrices ? 2 : 1;
  static constexpr unsigned count = Shape::tokens / tokens_at_once / phases;
  static_assert(count * phases * tokens_at_once == Shape::tokens);

  // Whether the last step may have fewer columns.
  static constexpr bool may_end_within = Format::block_columns % Shape::step != 0;

  float4 value[count];
  float small = 0.0f;  // how many activations of a token lost much, or more

  static ZINC_DEVICE unsigned token(unsigned phase, unsigned j) {
    return (phase * count + j) * tokens_at_once + threadIdx.x / fours;
  }

  template <class Source>
  ZINC_DEVICE void load(const Source& x, uint32_t k, uint32_t first_token, uint32_t step, unsigned phase) {
    forget(first_token);
    uint32_t column = step * Shape::step + threadIdx.x % fours * 4;
    if constexpr (may_end_within) column = min(column, k - 4);
#pragma unroll
    for (unsigned j = 0; j < count; ++j) {
      const float* const p = x.columns(min(first_token + token(phase, j), x.count - 1)) + column;
      value[j] = aligned ? __ldg(reinterpret_cast<const float4*>(p))
                         : make_float4(__ldg(p), __ldg(p + 1), __ldg(p + 2), __ldg(p + 3));
    }
  }

  ZINC_DEVICE void store(Tile& tile, uint32_t k, uint32_t step, unsigned phase) {
    const unsigned part = threadIdx.x % 4;
    const unsigned column_tile = threadIdx.x % fours / 4;
    float most = 0.0f;
#pragma unroll
    for (unsigned j = 0; j < count; ++j) {
      float v[4] = {value[j].x * half_scale, value[j].y * half_scale, value[j].z * half_scale, value[j].w * half_scale};
      if constexpr (may_end_within) {
        const bool past = step * Shape::step + threadIdx.x % fours * 4 >= k;
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) v[c] = past ? 0.0f : v[c];
      }
      const Split<Binary16> even(v[0], v[2]);
      const Split<Binary16> odd(v[1], v[3]);
      tile.step[step % 2].b[token(phase, j) / 8][column_tile][fragment_place(token(phase, j) % 8, part, column_tile)] =
          make_uint4(even.first, odd.first, even.second, odd.second);
      float mine = 0.0f;
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) mine += __saturatef(fmaf(fabsf(v[c]), -1.0f / half_small, 2.0f));
      most = fmaxf(most, mine);
      if constexpr (Tile::by_blocks) {
        const float sum = warp_sum<8>((v[0] + v[1]) + (v[2] + v[3]));
        if (threadIdx.x % 8 == 0) {
          const uint16_t first = float_to_half(sum);
          uint16_t* const to = reinterpret_cast<uint16_t*>(tile.block[step / 4 % 2].sums[token(phase, j)]) +
                               step % 4 * 2 + threadIdx.x % fours / 8;
          to[0] = first;
          to[8] = float_to_half(sum - half_to_float(first));
        }
      }
    }
    small += most;
  }
};

// The sums of a warp's rows and tokens, in the layout of the instruction.
template <class Shape>
using HalfSums = float[Shape::token_tiles][Shape::row_tiles][4];

// part += A B of one 16-column tile, for both numbers of the tokens.
template <class Shape>
ZINC_DEVICE void multiply_tokens(float (&part)[Shape::row_tiles][4], const uint4 (&a)[Shape::row_tiles],
                                 const uint4& b) {
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) mma_half(part[r], {a[r].x, a[r].y, a[r].z, a[r].w}, {b.x, b.y});
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) mma_half(part[r], {a[r].x, a[r].y, a[r].z, a[r].w}, {b.z, b.w});
}

// The scales of the lane's rows group and group + 8 of each row tile.
template <class Shape>
ZINC_DEVICE void read_scales(float (&scale)[Shape::row_tiles][2], const float (&from)[Shape::rows]) {
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
    const unsigned row = Shape::warp_row() + 16 * r + lane_id() / 4;
    scale[r][0] = from[row];
    scale[r][1] = from[row + 8];
  }
}

// sum += scale * part
template <class Shape>
ZINC_DEVICE void add_scaled(HalfSums<Shape>& sum, unsigned t, const float (&part)[Shape::row_tiles][4],
                            const float (&scale)[Shape::row_tiles][2]) {
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
    for (unsigned e = 0; e < 4; ++e) sum[t][r][e] = fmaf(scale[r][e / 2], part[r][e], sum[t][r][e]);
  }
}

// Subtracts the minimums of a block of 256 columns.
template <class Shape, class Block>
ZINC_DEVICE void subtract_minimums(HalfSums<Shape>& sum, const Block& block) {
  const unsigned group = lane_id() / 4;
  const unsigned part = lane_id() % 4;
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
    const unsigned row = Shape::warp_row() + 16 * r + group;
    const uint32_t low = block.minimums[row][part];
    const uint32_t high = block.minimums[row + 8][part];
    const float factors[2] = {-block.minimum_factor[row], -block.minimum_factor[row + 8]};
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      const uint32_t* const sums = block.sums[Shape::warp_token() + 8 * t + group];
      float product[4] = {};
      mma_half(product, {low, high, low, high}, {sums[part], sums[4 + part]});
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) sum[t][r][e] = fmaf(factors[e / 2], product[e], sum[t][r][e]);
    }
  }
}

// Adds the products of `count` column tiles of a staged step. `part` is what a block of 256 columns has so far, where
// they share a factor.
template <unsigned count, class Format, class Shape>
ZINC_DEVICE void add_half(HalfSums<Shape>& sum, HalfSums<Shape>& part, const HalfTile<Format, Shape>& tile,
                          uint32_t step, unsigned start) {
  using Tile = HalfTile<Format, Shape>;
  const auto& from = tile.step[step % 2];
  // The column tiles whose sums have one scale.
  constexpr unsigned tiles = Tile::by_blocks ? 1 : Format::scale_columns / 16;
  static_assert(count % tiles == 0);
#pragma unroll 1
  for (unsigned first = start; first < start + count; first += tiles) {
    uint4 a[tiles][Shape::row_tiles];
#pragma unroll
    for (unsigned c = 0; c < tiles; ++c) {
      const unsigned place = fragment_place(lane_id() / 4, lane_id() % 4, first + c);
#pragma unroll
      for (unsigned r = 0; r < Shape::row_tiles; ++r) a[c][r] = from.a[Shape::warp_row() / 16 + r][first + c][place];
    }
    float scale[Shape::row_tiles][2];
    if constexpr (!Tile::by_blocks) read_scales<Shape>(scale, from.scale[first / tiles]);
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
      float apart[Shape::row_tiles][4] = {};
#pragma unroll
      for (unsigned c = 0; c < tiles; ++c) {
        const unsigned place = fragment_place(lane_id() / 4, lane_id() % 4, first + c);
        const uint4 b = from.b[Shape::warp_token() / 8 + t][first + c][place];
        multiply_tokens<Shape>(Tile::by_blocks ? part[t] : apart, a[c], b);
      }
      if constexpr (!Tile::by_blocks) add_scaled<Shape>(sum, t, apart, scale);
    }
  }
}

// Adds a finished block of 256 columns, and clears `part`.
template <class Shape>
ZINC_DEVICE void add_block(HalfSums<Shape>& sum, HalfSums<Shape>& part, const HalfBlock<Shape, true>& block) {
  float scale[Shape::row_tiles][2];
  read_scales<Shape>(scale, block.factor);
#pragma unroll
  for (unsigned t = 0; t < Shape::token_tiles; ++t) {
    add_scaled<Shape>(sum, t, part[t], scale);
#pragma unroll
    for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) part[t][r][e] = 0.0f;
    }
  }
  subtract_minimums<Shape>(sum, block);
}

// The sums of one tile by all threads of the block, or false in all of them if they are not as exact as the contracts
// ask: with activations that are not finite or too large, or with so many small ones that what they lose could be seen.
template <bool wide, class Format, class Shape, class Source>
ZINC_DEVICE bool half_product(HalfSums<Shape>& sum, HalfTile<Format, Shape>& tile, uint32_t (&limits)[2],
                              const uint8_t* const (&matrix)[Shape::matrices], uint32_t m, uint32_t row,
                              const Source& x, uint32_t token, uint32_t k) {
  const uint32_t steps = (k + Shape::step - 1) / Shape::step;
  HalfSums<Shape> part = {};
  HalfRows<wide, Format, Shape> rows;
  HalfTokens<wide, Format, Shape> tokens;
  rows.load(matrix, m, k, row, 0);
  tokens.load(x, k, token, 0, 0);
  __syncthreads();  // the last readers of the tile and of the limits are done
  if (threadIdx.x < 2) limits[threadIdx.x] = 0;
  rows.store(tile, 0);
  tokens.store(tile, k, 0, 0);
  for (unsigned phase = 1; phase < tokens.phases; ++phase) {
    tokens.load(x, k, token, 0, phase);
    tokens.store(tile, k, 0, phase);
  }
  if constexpr (Shape::in_turns && tokens.phases == 1) {
    const auto load = [&](uint32_t step) {
      if (step >= steps) return;
      rows.load(matrix, m, k, row, step);
      tokens.load(x, k, token, step, 0);
    };
    const auto stage = [&](uint32_t step) {
      if (step < steps) {
        tokens.store(tile, k, step, 0);
        rows.store(tile, step);
      }
      load(step + 1);
    };
    load(1);
    // Of the two warps that share a part of the multiprocessor one stores while the other multiplies. Blocks of 256
    // columns gain nothing by it.
    const bool first = !tile.by_blocks && warp_id() / 4 % 2 != 0;
    for (uint32_t step = 0; step < steps; ++step) {
      __syncthreads();  // this step is there, and the readers of the one before it are done
      if (first) stage(step + 1);
      add_half<Shape::column_tiles>(sum, part, tile, step, 0);
      if (!first) stage(step + 1);
      if constexpr (tile.by_blocks) {
        if (step % 4 == 3) add_block<Shape>(sum, part, tile.block[step / 4 % 2]);
      }
    }
  } else {
    for (uint32_t step = 0; step < steps; ++step) {
      __syncthreads();  // this step is there, and the readers of the one before it are done
      const bool more = step + 1 < steps;
#pragma unroll
      for (unsigned phase = 0; phase < tokens.phases; ++phase) {
        if (more) {
          // In flight while the products are formed.
          tokens.load(x, k, token, step + 1, phase);
          if (phase == 0) rows.load(matrix, m, k, row, step + 1);
        }
        constexpr unsigned column_tiles = Shape::column_tiles / tokens.phases;
        add_half<column_tiles>(sum, part, tile, step, phase * column_tiles);
        if (more) tokens.store(tile, k, step + 1, phase);
      }
      if (more) rows.store(tile, step + 1);
      if constexpr (tile.by_blocks) {
        if (step % 4 == 3) add_block<Shape>(sum, part, tile.block[step / 4 % 2]);
      }
    }
  }
  bool finite = true;
#pragma unroll
  for (unsigned r = 0; r < Shape::row_tiles; ++r) {
#pragma unroll
    for (unsigned t = 0; t < Shape::token_tiles; ++t) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) finite = finite && fabsf(sum[t][r][e]) < __uint_as_float(0x7F800000u);
    }
  }
  // The bits of floats that are not negative are in their order, NaN above all.
  atomicMax(&limits[0], __float_as_uint(warp_sum<tokens.fours>(tokens.small)));
  atomicMax(&limits[1], __float_as_uint(rows.largest));
  const bool bad = __syncthreads_or(!finite);
  // Sums of 32 activations lose as much as one.
  const float lossy = __uint_as_float(limits[0]) + static_cast<float>(k / 32);
  return !bad && lossy * __uint_as_float(limits[1]) <= half_allowed;
}

}  // namespace zinc
