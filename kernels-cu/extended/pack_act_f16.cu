// Rounds a token-major f32 matrix to f16, one power of two per token, in the order of mul_mm_*_f16. Grid: x over the
// tokens; the block owns one, a thread its units in turn, of which it holds the first `held` in registers and fetches
// those of a longer token twice. A unit is 16 of 32 columns: of every eight the first or the last four.
//@ tile = { max_warps = 32, held = 1 }
//@ block = ["32 * min(max_warps, ceil_div(ceil_div(k, 64), 8 * held))"]
//@ grid = ["n"]
//@ overlap = true
#include "zinc/pack_act_f16.h"

#include "zinc/half.cuh"
#include "zinc/span.cuh"
#include "zinc/warp.cuh"

namespace {

constexpr unsigned half_columns = 32;  // half of the columns that lie together for all tokens
constexpr unsigned unit_parts = 4;     // of four columns each, eight columns apart
constexpr unsigned half_units = 2;
constexpr unsigned stretch_units = 4;   // of 64 columns
constexpr unsigned stretch_pieces = 8;  // of 16 bytes
constexpr unsigned swizzle_tokens = 8;
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
  uint32_t halves;    // of stretches, that have columns
  uint32_t units;     // of whole stretches
};

struct Unit {
  zinc::Pack<float, zinc::wide> part[unit_parts];
};

// The columns of a unit, zeros behind the last column.
template <unsigned width>
ZINC_DEVICE Unit load(const Token& token, uint32_t number) {
  const uint32_t half = number / half_units;
  const float* const x = token.x + uint64_t{half} * half_columns + number % half_units * zinc::wide;
  Unit unit = {};
  if (half < token.halves) {
#pragma unroll
    for (unsigned i = 0; i < unit_parts; ++i) {
#pragma unroll
      for (unsigned j = 0; j < zinc::wide; j += width) {
        const auto values = zinc::Span<width>{i * half_units * zinc::wide + j}.of(x);
#pragma unroll
        for (unsigned l = 0; l < width; ++l) unit.part[i].at[j + l] = values.at[l];
      }
    }
  }
  return unit;
}

// The bits of the largest finite magnitude, which are in the order of the magnitudes.
ZINC_DEVICE uint32_t largest(const Unit& unit) {
  uint32_t most = 0;
#pragma unroll
  for (unsigned i = 0; i < unit_parts; ++i) {
#pragma unroll
    for (unsigned j = 0; j < zinc::wide; ++j) {
      const uint32_t magnitude = __float_as_uint(fabsf(unit.part[i].at[j]));
      most = max(most, magnitude < infinity ? magnitude : 0);
    }
  }
  return most;
}

// As floats_to_halves, also before compute capability 8.0.
ZINC_DEVICE uint32_t halves_of(float first, float second) {
#if ZINC_ARCH == 0 || ZINC_ARCH >= 80
  return zinc::floats_to_halves(first, second);
#else
  return zinc::float_to_half(first) | uint32_t{zinc::float_to_half(second)} << 16;
#endif
}

// Stores a unit: of its columns those of even number are one piece, the others the next one. The two lanes of 32
// columns trade pieces, so that a store of both fills 32 bytes. All lanes of the warp must call this.
ZINC_DEVICE void store(const Token& token, uint32_t number, const Unit& unit, float factor) {
  const unsigned last = number % half_units;
  uint32_t kept[unit_parts];
  uint32_t traded[unit_parts];
#pragma unroll
  for (unsigned i = 0; i < unit_parts; ++i) {
    const auto v = zinc::each([=](float x) { return x * factor; }, unit.part[i]);
    const uint32_t even = halves_of(v.at[0], v.at[2]);
    const uint32_t odd = halves_of(v.at[1], v.at[3]);
    kept[i] = last ? odd : even;
    traded[i] = __shfl_xor_sync(zinc::full_warp, last ? even : odd, 1);
  }
  if (number >= token.units) return;
  const uint4 own = make_uint4(kept[0], kept[1], kept[2], kept[3]);
  const uint4 other = make_uint4(traded[0], traded[1], traded[2], traded[3]);
  uint4* const h = token.h + number / stretch_units * token.stretch;
  const unsigned piece = number % stretch_units / half_units * (stretch_pieces / 2) + last;
  h[piece ^ token.exchange] = last ? other : own;
  h[(piece + 2) ^ token.exchange] = last ? own : other;
}

template <unsigned held, unsigned width>
ZINC_DEVICE void pack(const Token& token, float& scale) {
  ZINC_SHARED(uint32_t[zinc::max_block_warps], partial);
  const uint32_t lane = zinc::lane_id();
  const uint32_t first = threadIdx.x - lane;
  const uint32_t step = blockDim.x;
  Unit unit[held];
  uint32_t most = 0;
#pragma unroll
  for (unsigned j = 0; j < held; ++j) unit[j] = load<width>(token, threadIdx.x + j * step);
#pragma unroll
  for (unsigned j = 0; j < held; ++j) most = max(most, largest(unit[j]));
  for (uint32_t i = first + held * step; i < token.units; i += step) {
    most = max(most, largest(load<width>(token, i + lane)));
  }
  most = zinc::warp_max_u32(most);
  if (lane == 0) partial[zinc::warp_id()] = most;
  __syncthreads();
  most = zinc::warp_max_u32(lane < zinc::block_warps() ? partial[lane] : 0);

  const uint32_t exponent =
      most == 0 ? one_exponent : max(most >> exponent_bit, largest_exponent + 1) - largest_exponent;
  if (threadIdx.x == 0) scale = __uint_as_float(exponent << exponent_bit);
  const float factor = __uint_as_float((2 * one_exponent - exponent) << exponent_bit);
#pragma unroll
  for (unsigned j = 0; j < held; ++j) {
    if (first + j * step < token.units) store(token, threadIdx.x + j * step, unit[j], factor);
  }
  for (uint32_t i = first + held * step; i < token.units; i += step) {
    store(token, i + lane, load<width>(token, i + lane), factor);
  }
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * pack_act_f16_tile::max_warps)
    pack_act_f16(const float* __restrict__ x, uint16_t* __restrict__ h, float* __restrict__ scale,
                 pack_act_f16_push p) {
  zinc::wait_for_previous();
  const uint32_t stretches = (p.k - 1) / (2 * half_columns) + 1;
  const uint64_t t = blockIdx.x;
  const Token token = {
      x + p.x_offset + t * p.stride_x,
      reinterpret_cast<uint4*>(h) + t * stretch_pieces,
      uint64_t{p.n} * stretch_pieces,
      blockIdx.x % swizzle_tokens,
      p.k / half_columns,
      stretches * stretch_units,
  };
  constexpr unsigned held = pack_act_f16_tile::held;
  if (zinc::all_aligned(token.x)) {
    pack<held, zinc::wide>(token, scale[t]);
  } else {
    pack<held, 1>(token, scale[t]);
  }
}
