// Rounds a token-major f32 matrix to f16, one power of two per token, in the order of mul_mm_*_f16. Grid: x over the
// tokens; the block owns one. A warp owns spans of 512 columns in turn, of which it holds the first in registers and
// fetches those of a longer token twice. A lane loads four columns out of every 128 of a span.
#include "zinc/pack_act_f16.h"

#include "zinc/half.cuh"
#include "zinc/span.cuh"
#include "zinc/warp.cuh"

namespace {

constexpr unsigned stretch_columns = 64;  // which lie together for all tokens
constexpr unsigned stretch_pieces = 8;    // of 16 bytes
constexpr unsigned swizzle_tokens = 8;
constexpr unsigned parts = 4;  // of a span
constexpr unsigned part_columns = zinc::warp_size * zinc::wide;
constexpr unsigned span_columns = pack_act_f16_tile::span_columns;
static_assert(span_columns == parts * part_columns, "a warp loads a part at once");
constexpr unsigned half_lanes = 8;  // that hold the 32 columns of half a stretch
constexpr uint32_t infinity = 0x7f800000u;
constexpr unsigned exponent_bit = 23;
constexpr uint32_t one_exponent = 127;
constexpr uint32_t largest_exponent = 14;  // of a token's numbers, where its scale is a normal f32

// One token: its columns, and where the pieces of its first stretch go.
struct Token {
  const float* x;
  uint4* h;
  uint64_t stretch;   // pieces from one stretch to the next
  unsigned exchange;  // what the token's piece numbers are combined with
  uint32_t k;
  bool aligned;
};

// What a lane holds of a span: its columns of each part.
struct Columns {
  zinc::Pack<float, zinc::wide> part[parts];
};

template <unsigned width>
ZINC_DEVICE Columns load(const Token& token, uint32_t first) {
  const uint32_t left = max(token.k, first) - first;
  Columns columns = {};
#pragma unroll
  for (unsigned i = 0; i < parts; ++i) {
    const uint32_t place = i * part_columns + zinc::lane_id() * zinc::wide;
    if (place < left) {
#pragma unroll
      for (unsigned j = 0; j < zinc::wide; j += width) {
        const auto values = zinc::Span<width>{place + j}.of(token.x + first);
#pragma unroll
        for (unsigned l = 0; l < width; ++l) columns.part[i].at[j + l] = values.at[l];
      }
    }
  }
  return columns;
}

// The lane's columns of the span from `first` on, a multiple of its length, with zeros behind the last column.
ZINC_DEVICE Columns load(const Token& token, uint32_t first) {
  return token.aligned ? load<zinc::wide>(token, first) : load<1>(token, first);
}

// The bits of the largest finite magnitude, which are in the order of the magnitudes.
ZINC_DEVICE uint32_t largest(const Columns& columns) {
  uint32_t most = 0;
#pragma unroll
  for (unsigned i = 0; i < parts; ++i) {
#pragma unroll
    for (unsigned j = 0; j < zinc::wide; ++j) {
      const uint32_t magnitude = __float_as_uint(fabsf(columns.part[i].at[j]));
      most = max(most, magnitude < infinity ? magnitude : 0);
    }
  }
  return most;
}

// Trades `first` of the lanes that have the bit with `second` of their partners, which have it not.
ZINC_DEVICE void trade(uint32_t& first, uint32_t& second, unsigned lane_bit) {
  const bool has = zinc::lane_id() & lane_bit;
  const uint32_t got = __shfl_xor_sync(zinc::full_warp, has ? first : second, lane_bit);
  first = has ? got : first;
  second = has ? second : got;
}

// Stores a span. Each lane has a word of even and a word of odd columns of each part. Four words of lanes that hold
// every second four columns are a piece: lanes trade words until each has two pieces of one part, and two lanes
// together pieces that fill 32 bytes. All lanes of the warp must call this.
ZINC_DEVICE void store(const Token& token, uint32_t first, const Columns& columns, float factor) {
  uint32_t low[parts];
  uint32_t high[parts];
#pragma unroll
  for (unsigned i = 0; i < parts; ++i) {
    const auto v = zinc::each([=](float x) { return x * factor; }, columns.part[i]);
    low[i] = zinc::floats_to_halves(v.at[0], v.at[2]);
    high[i] = zinc::floats_to_halves(v.at[1], v.at[3]);
    trade(low[i], high[i], 1);
  }
#pragma unroll
  for (unsigned bit = 1; bit < parts; bit *= 2) {
#pragma unroll
    for (unsigned i = 0; i < parts; ++i) {
      if (i & bit) continue;
      trade(low[i], low[i + bit], 2 * bit);
      trade(high[i], high[i + bit], 2 * bit);
    }
  }
  const unsigned lane = zinc::lane_id();
  const unsigned place = lane / 2 % parts * part_columns + lane / half_lanes * (stretch_columns / 2);
  const unsigned q = place / stretch_columns;
  if (q > (token.k - first - 1) / stretch_columns) return;
  uint4* const h = token.h + (first / stretch_columns + q) * token.stretch;
  const unsigned piece = place % stretch_columns / (stretch_columns / stretch_pieces) + lane % 2;
  h[piece ^ token.exchange] = make_uint4(low[0], low[1], low[2], low[3]);
  h[(piece + 2) ^ token.exchange] = make_uint4(high[0], high[1], high[2], high[3]);
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * pack_act_f16_tile::max_warps)
    pack_act_f16(const float* __restrict__ x, uint16_t* __restrict__ h, float* __restrict__ scale,
                 pack_act_f16_push p) {
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);
  zinc::wait_for_previous();
  const uint64_t t = blockIdx.x;
  const float* const columns = x + p.x_offset + t * p.stride_x;
  const Token token = {
      columns,
      reinterpret_cast<uint4*>(h) + t * stretch_pieces,
      uint64_t{p.n} * stretch_pieces,
      blockIdx.x % swizzle_tokens,
      p.k,
      zinc::all_aligned(columns),
  };
  const uint32_t first = zinc::warp_id() * span_columns;
  const uint32_t step = zinc::block_warps() * span_columns;
  const Columns own = load(token, first);
  uint32_t most = largest(own);
  for (uint64_t c = uint64_t{first} + step; c < p.k; c += step) {
    most = max(most, largest(load(token, static_cast<uint32_t>(c))));
  }
  most = zinc::warp_max_u32(most);
  if (zinc::lane_id() == 0) partial[zinc::warp_id()] = most;
  __syncthreads();
  most = zinc::warp_max_u32(zinc::lane_id() < zinc::block_warps() ? partial[zinc::lane_id()] : 0);

  const uint32_t exponent =
      most == 0 ? one_exponent : max(most >> exponent_bit, largest_exponent + 1) - largest_exponent;
  if (threadIdx.x == 0) scale[t] = __uint_as_float(exponent << exponent_bit);
  const float factor = __uint_as_float((2 * one_exponent - exponent) << exponent_bit);
  if (first < p.k) store(token, first, own, factor);
  for (uint64_t c = uint64_t{first} + step; c < p.k; c += step) {
    store(token, static_cast<uint32_t>(c), load(token, static_cast<uint32_t>(c)), factor);
  }
}
