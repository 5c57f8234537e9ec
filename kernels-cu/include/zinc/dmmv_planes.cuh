// f32 activations as int8 planes in shared memory, for exact products with quantized weights on the tensor cores.
//
// Within each group of columns that share a scale, x = 2^(top - 30) * q with the power of two that makes |q| < 2^30,
// and q = d0 + 2^8 d1 + 2^16 d2 + 2^24 d3 with digits of -128 .. 127. Neighbouring floats of the group keep all their
// bits down to 2^-6 of the largest, smaller ones are rounded to 2^-30 of it. That the scale is a power of two makes
// every product with it exact.
#pragma once

#include "zinc/dmmv_activations.cuh"
#include "zinc/half.cuh"

namespace zinc {

// The columns that a warp multiplies at a time, and the digits of an activation.
constexpr unsigned step_columns = 256;
constexpr unsigned planes = 4;
// A step is multiplied in sets of 64 columns, 16 columns per lane of a quad and row: the first two lanes hold columns
// of one scale (32 columns) or two (16 columns each, of which a lane has its first and its last eight bytes), the last
// two lanes those of others.
constexpr unsigned step_sets = 4;
constexpr unsigned set_columns = step_columns / step_sets;
// Zeros that lanes read instead of planes that are not theirs.
constexpr unsigned zero_bytes = 128;

// Where the activations of `Tiles` (see dmmv_tiles.cuh) lie in shared memory, for one vector:
//   zeros    for lanes whose half is not multiplied
//   planes   [step][set][half][plane, permuted][lane of the half] 16 bytes, in the order in which lanes hold weights
//   scales   [step][lane of the quad][set][scale of the set] f32: lanes 0 and 2 hold sums of planes 0 and 1, lanes 1
//            and 3 of planes 2 and 3, so theirs is 2^16 times larger
//   sums     [step][group] f32: of the activations, for formats with a minimum
template <class Tiles>
struct PlaneLayout {
  static constexpr unsigned group_columns = Tiles::scale_columns;
  static constexpr unsigned groups = step_columns / group_columns;
  static constexpr unsigned set_scales = 32 / group_columns;
  static constexpr unsigned plane_bytes = step_columns * planes;
  static constexpr unsigned zero_bytes = zinc::zero_bytes;
  static constexpr unsigned scale_bytes = 4 * step_sets * set_scales * 4;
  static constexpr unsigned sum_bytes = Tiles::has_minimum ? groups * 4 : 0;
  static constexpr unsigned step_bytes = plane_bytes + scale_bytes + sum_bytes;
  static_assert(group_columns == 32 || group_columns == 16);

  // Where a step's planes of a set and half lie. The order of the planes differs between the four sets and halves that
  // neighbouring columns belong to, so that those who write them meet different banks.
  static ZINC_DEVICE unsigned plane_at(unsigned set, unsigned half, unsigned plane) {
    return set * 256 + half * 128 + ((plane ^ set ^ (2 * half)) % planes) * 32;
  }
};

// What a group of columns is multiplied with to become integers or halves.
struct GroupScale {
  uint32_t exponent;  // of the power of two at or below the largest magnitude, as in the bits of an f32
  bool unfit;         // whether the group cannot be represented: see Planes
};

// That of the columns that `lanes` neighbouring lanes have, each eight of them. Beside a column that is further above
// all others together than `outlier`, the others would lose more than the contracts allow where its weight is 0.
template <unsigned lanes, unsigned columns>
ZINC_DEVICE GroupScale group_scale(const float (&x)[columns], float outlier) {
  constexpr uint32_t smallest = (127u - 90) << 23;  // 2^-90
  constexpr uint32_t largest = (127u + 96) << 23;   // 2^96
  // Bit patterns of magnitudes are in the order of the magnitudes, with NaN above infinity.
  constexpr uint32_t magnitude = 0x7FFFFFFFu;
  uint32_t top = 0;
#pragma unroll
  for (unsigned i = 0; i < columns; ++i) top = max(top, __float_as_uint(x[i]) & magnitude);
#pragma unroll
  for (unsigned offset = lanes / 2; offset > 0; offset /= 2) {
    top = max(top, static_cast<uint32_t>(__shfl_xor_sync(full_warp, top, offset)));
  }
  float others = 0.0f;
#pragma unroll
  for (unsigned i = 0; i < columns; ++i) {
    const uint32_t bits = __float_as_uint(x[i]) & magnitude;
    others += bits < top ? __uint_as_float(bits) : 0.0f;
  }
  others = warp_sum<lanes>(others);
  const bool unfit =
      (top != 0 && top < smallest) || top >= largest || (others > 0.0f && others * outlier < __uint_as_float(top));
  return {min(max(top, smallest), largest) >> 23, unfit};
}

template <bool condition, class A, class B>
struct select {
  using type = A;
};
template <class A, class B>
struct select<false, A, B> {
  using type = B;
};

// The planes of one vector: `steps` steps from `memory` on.
template <class Tiles>
struct Planes {
  using Layout = PlaneLayout<Tiles>;

  uint8_t* memory;
  uint32_t steps;

  ZINC_DEVICE uint8_t* scales() const { return memory + steps * Layout::plane_bytes; }
  ZINC_DEVICE uint8_t* sums() const { return scales() + steps * Layout::scale_bytes; }

  // Fills them with vector v of a source by all threads of the block; columns past the last are zeros. True if this
  // thread saw a value that planes cannot represent: no finite number, one so large or small that a scale is not, or
  // one that dwarfs its neighbours.
  template <unsigned threads, class Source>
  ZINC_DEVICE bool fill(const Source& source, unsigned v, uint32_t columns) const {
    bool unfit = false;
    // Steps are whole warps' work.
    for (uint32_t c = lane_columns * threadIdx.x; c < steps * step_columns; c += lane_columns * threads) {
      unfit = put(c < columns ? source.four(v, c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f),
                  c + 4 < columns ? source.four(v, c + 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f), c) ||
              unfit;
    }
    return unfit;
  }

  // What a lane stores at a time.
  static constexpr unsigned lane_columns = step_columns / warp_size;

  // Stores the columns c .. c + 7, a step by all lanes of a warp; true as fill is.
  ZINC_DEVICE bool put(const float4& x0, const float4& x1, uint32_t c) const {
    static_assert(lane_columns == 8);
    constexpr unsigned group_lanes = Layout::group_columns / lane_columns;
    const float x[lane_columns] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    // Digits reach to 2^-30 of the largest: half a digit is lost in each column.
    const auto [exponent, unfit] = group_scale<group_lanes>(x, Layout::group_columns > 32 ? 32.0f : 256.0f);
    const float to_integer = __uint_as_float((127u + 29 + 127 - exponent) << 23);
    uint32_t words[planes][2];
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      // Bytes of four columns to words of four planes.
      const uint32_t digits[4] = {balanced(x[4 * i] * to_integer), balanced(x[4 * i + 1] * to_integer),
                                  balanced(x[4 * i + 2] * to_integer), balanced(x[4 * i + 3] * to_integer)};
      const uint32_t low01 = __byte_perm(digits[0], digits[1], 0x5140u);
      const uint32_t low23 = __byte_perm(digits[2], digits[3], 0x5140u);
      const uint32_t high01 = __byte_perm(digits[0], digits[1], 0x7362u);
      const uint32_t high23 = __byte_perm(digits[2], digits[3], 0x7362u);
      words[0][i] = __byte_perm(low01, low23, 0x5410u);
      words[1][i] = __byte_perm(low01, low23, 0x7632u);
      words[2][i] = __byte_perm(high01, high23, 0x5410u);
      words[3][i] = __byte_perm(high01, high23, 0x7632u);
    }
    const float scale = __uint_as_float((exponent - 29) << 23);
    put_set(words, scale, c);
    if constexpr (Tiles::has_minimum) {
      constexpr unsigned sum_columns = 32;
      const float sum =
          warp_sum<sum_columns / lane_columns>(((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
      if (c % sum_columns == 0) reinterpret_cast<float*>(sums())[c / sum_columns] = sum;
    }
    return unfit;
  }

 private:
  // Stores the bytes of eight columns' planes in their set, and the scale of their group.
  ZINC_DEVICE void put_set(uint32_t (&words)[planes][2], float scale, uint32_t c) const {
    const uint32_t step = c / step_columns;
    if constexpr (Tiles::interleaved) {
      // Of eight columns of both, the first half goes to the lane of the first ones.
      constexpr unsigned partner = 16 / lane_columns;
      const bool second = c % (2 * 16) >= 16;
#pragma unroll
      for (unsigned p = 0; p < planes; ++p) {
        const uint32_t own = second ? words[p][1] : words[p][0];
        const uint32_t other = __shfl_xor_sync(full_warp, second ? words[p][0] : words[p][1], partner);
        words[p][0] = __byte_perm(second ? other : own, second ? own : other, 0x5140u);
        words[p][1] = __byte_perm(second ? other : own, second ? own : other, 0x7362u);
      }
    }
    const unsigned at = Tiles::position(c % step_columns);
    const unsigned set = at / set_columns;
    const unsigned lane = at / 16 % 4;
    uint8_t* const to = memory + step * Layout::plane_bytes + lane % 2 * 16 + at % 16;
#pragma unroll
    for (unsigned p = 0; p < planes; ++p) {
      *reinterpret_cast<uint2*>(to + Layout::plane_at(set, lane / 2, p)) = make_uint2(words[p][0], words[p][1]);
    }
    if (c % Layout::group_columns == 0) {
      const unsigned which = set * Layout::set_scales + at % 16 / 8 % Layout::set_scales;
      float* const pair = reinterpret_cast<float*>(scales() + step * Layout::scale_bytes) +
                          lane / 2 * 2 * (step_sets * Layout::set_scales) + which;
      pair[0] = scale * Tiles::set_scale(set);
      pair[step_sets * Layout::set_scales] = pair[0] * 65536.0f;
    }
  }

  // The four digits of the integer nearest to `value`, d0 in the lowest byte. Adding 128 to each digit makes them
  // bytes without borrows between them; flipping their top bits takes the 128 off again.
  static ZINC_DEVICE uint32_t balanced(float value) {
    constexpr uint32_t bias = 0x80808080u;
    return (static_cast<uint32_t>(__float2int_rn(value)) + bias) ^ bias;
  }
};

// Eights, fours or twos of vectors as pairs of binary16 numbers, for products in which the tokens are vectors or their
// pieces: x times a power of two, which brings the largest of a step's columns to 2^14 or more, is the sum of two
// halves up to 2^-22 of itself, or 2^-25 where that is more. A lane of a quad has 16 columns of two groups of 32 in
// each half of a step, as 16 bytes of nibbles have them: those of the group before in the lower ones.
//   halves   [step][half][lower, upper][eight columns][tokens of vectors and pieces][lane of the quad] 16 bytes, the
//            columns 0, 2, 1, 3, 4, 6, 5, 7. Fewer than eight vectors: token 2 v is the first piece, 2 v + 1 the
//            second one. Eight: the first pieces of all, then the second ones.
//   sums     of a group's columns, 2^-5 of them: [step][token][lane of the quad: groups 2 lane, 2 lane + 1] halves;
//            eight vectors: both pieces for each lane
//   scales   [step][vector] f32: 2^shift times what halves are to be multiplied with
template <unsigned vectors>
struct Halves {
  static_assert(vectors == 2 || vectors == 4 || vectors == 8);
  static constexpr unsigned lane_columns = step_columns / warp_size;
  static constexpr unsigned parts = 8;  // of a step
  static constexpr unsigned token_bytes = 64;
  static constexpr unsigned piece_bytes = 8 * token_bytes;  // of eight vectors
  static constexpr unsigned part_bytes = vectors * 2 * token_bytes;
  static constexpr unsigned step_bytes = parts * part_bytes;
  static constexpr unsigned sum_bytes = vectors * 32;
  static constexpr unsigned scale_bytes = vectors * 4;
  static constexpr unsigned shift = 19;

  uint8_t* memory;
  uint32_t steps;

  ZINC_DEVICE uint8_t* sums() const { return memory + steps * step_bytes; }
  ZINC_DEVICE uint8_t* scales() const { return sums() + steps * sum_bytes; }

  // Fills them with the vectors of a source by all threads of the block; true as Planes::fill.
  template <unsigned threads, class Source>
  ZINC_DEVICE bool fill(const Source& source, uint32_t columns) const {
    constexpr unsigned together = vectors < 4 ? vectors : 4;  // requested before any is used
    bool unfit = false;
    for (uint32_t c = lane_columns * threadIdx.x; c < steps * step_columns; c += lane_columns * threads) {
#pragma unroll 1
      for (unsigned first = 0; first < vectors; first += together) {
        float4 x[together][2];
#pragma unroll
        for (unsigned i = 0; i < 2 * together; ++i) {
          const uint32_t at = c + i % 2 * 4;
          x[i / 2][i % 2] = at < columns ? source.four(first + i / 2, at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (unsigned i = 0; i < together; ++i) unfit = put(x[i][0], x[i][1], first + i, c) || unfit;
      }
    }
    return unfit;
  }

 private:
  // Stores the columns c .. c + 7 of vector v, a step by all lanes of a warp.
  ZINC_DEVICE bool put(const float4& x0, const float4& x1, unsigned v, uint32_t c) const {
    const float x[lane_columns] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    const auto [exponent, unfit] = group_scale<warp_size>(x, 32.0f);
    const float to_halves = __uint_as_float((127u + 14 + 127 - exponent) << 23);
    const uint32_t step = c / step_columns;
    const unsigned group = c % step_columns / 32;
    uint4 first;
    uint4 second;
    split(x[0] * to_halves, x[2] * to_halves, first.x, second.x);
    split(x[1] * to_halves, x[3] * to_halves, first.y, second.y);
    split(x[4] * to_halves, x[6] * to_halves, first.z, second.z);
    split(x[5] * to_halves, x[7] * to_halves, first.w, second.w);
    const unsigned eight = c / lane_columns % 4;  // of the group
    const unsigned part = group / 4 * 4 + group % 2 * 2 + eight % 2;
    const unsigned lane = group / 2 % 2 * 2 + eight / 2;
    uint8_t* const to =
        memory + step * step_bytes + part * part_bytes + (vectors == 8 ? v : 2 * v) * token_bytes + lane * 16;
    *reinterpret_cast<uint4*>(to) = first;
    *reinterpret_cast<uint4*>(to + (vectors == 8 ? piece_bytes : token_bytes)) = second;
    const float sum = warp_sum<4>(((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])));
    if (c % 32 == 0) {
      uint32_t high;
      uint32_t low;
      split(sum * (to_halves * 0.03125f), 0.0f, high, low);
      uint8_t* const at = sums() + step * sum_bytes + v * 32 + group / 2 * (vectors == 8 ? 8 : 4) + group % 2 * 2;
      *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(high);
      *reinterpret_cast<uint16_t*>(at + (vectors == 8 ? 4 : 16)) = static_cast<uint16_t>(low);
    }
    if (c % step_columns == 0) {
      *reinterpret_cast<float*>(scales() + step * scale_bytes + v * 4) = __uint_as_float((exponent - 14 + shift) << 23);
    }
    return unfit;
  }

  static ZINC_DEVICE void split(float a, float b, uint32_t& first, uint32_t& second) {
    first = floats_to_halves(a, b);
    second = floats_to_halves(a - half_to_float(static_cast<uint16_t>(first)),
                              b - half_to_float(static_cast<uint16_t>(first >> 16)));
  }
};

}  // namespace zinc
