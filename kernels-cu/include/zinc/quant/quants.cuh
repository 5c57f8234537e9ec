// How four quants packed into a word become numbers: floats for f32 arithmetic, signed bytes for integer dot
// products. One word holds four neighbouring columns, the lowest in the least significant byte.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

// Quants stored as unsigned bytes whose value is the byte minus `bias`.
template <unsigned bias>
struct BiasedQuants {
  // Quant `j` of the word, exactly. The byte becomes the low mantissa bits of 2^23, which costs a permutation and a
  // subtraction; integer-to-float conversions run at a quarter of their rate.
  static ZINC_DEVICE float to_float(uint32_t word, unsigned j) {
    constexpr uint32_t magic = 0x4B000000u;  // 2^23 as f32
    constexpr float offset = 8388608.0f + bias;
    return __uint_as_float(__byte_perm(word, magic, 0x7440u | j)) - offset;
  }

  // All four as signed bytes. Needs byte + 128 - bias < 256, so that no carry crosses bytes.
  static ZINC_DEVICE uint32_t to_int8(uint32_t word) {
    return bias == 0 ? word : (word + (128u - bias) * 0x01010101u) ^ 0x80808080u;
  }
};

// Quants stored as two's complement bytes.
struct SignedQuants {
  static ZINC_DEVICE float to_float(uint32_t word, unsigned j) {
    return BiasedQuants<128>::to_float(word ^ 0x80808080u, j);
  }

  static ZINC_DEVICE uint32_t to_int8(uint32_t word) { return word; }
};

// A quantized format is a struct with
//   block_columns, block_bytes   the block that GGML stores
//   run_distance                 see below, in columns
//   scale_columns                how many neighbouring columns share a scale, 16 or 32
//   has_minimum                  whether a constant is subtracted from scale * quant
//   alignment, wide_alignment    of a block: what the contracts promise and load<false> needs, what load<true> needs;
//                                equal where a format has no wider loads
//   Quants                       BiasedQuants or SignedQuants
//   Unit, load<wide>(block, part)
// A unit is what one thread decodes at a time: 32 columns as two runs of 16 neighbouring columns, so chosen that the
// bits of both runs share bytes. Unit `part` of a block starts at its part-th column group of 16 whose bit run_distance
// is clear; its second run lies run_distance columns after the first. A unit has
//   word(run, i)                 quants of columns 4 i .. 4 i + 3 of the run
//   scales()                     scale[run] and, where has_minimum, minimum[run]: weight = scale * quant - minimum
// All products scale * quant are exact in f32 (an 11-bit factor, an integer scale of at most 7 bits and a quant of at
// most 6; or 11 and 8), so a multiply-add that skips their rounding still gives GGML's dequantized value.
constexpr unsigned run_columns = 16;
constexpr unsigned unit_columns = 2 * run_columns;
constexpr unsigned run_words = run_columns / 4;

}  // namespace zinc
