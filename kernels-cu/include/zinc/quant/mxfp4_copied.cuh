// MXFP4 as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/copied.cuh"
#include "zinc/quant/mxfp4.cuh"

namespace zinc {

// Of the codes of a block a lane has a word. Of four blocks the last one's codes are aligned to words; of another one
// the first three lanes have the aligned words inside, the last lane what is left on both sides of these. A code's bits
// in their places in a half are 2^-14 of its value, exactly.
struct CopiedMxfp4 {
  using Format = Mxfp4;
  static constexpr bool across = true;
  static constexpr unsigned sides = 1;
  static constexpr bool keeps_columns = true;
  static constexpr bool has_minimum = false;
  static constexpr bool rotates = true;
  static constexpr unsigned rotation_columns = 16;
  static constexpr unsigned most_rotation = 3;
  static constexpr unsigned step_bytes = step_columns / Mxfp4::block_columns * Mxfp4::block_bytes;
  static constexpr unsigned row_columns = 512;
  static constexpr unsigned pitch = 1104;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 4;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 3;
  static constexpr unsigned ahead_of_two = 1;
  static constexpr bool late = false;

  static constexpr unsigned aligned_blocks = 4;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return part + aligned_blocks * i; }
  static ZINC_DEVICE unsigned rotation(uint32_t, unsigned block) { return 3 - block % aligned_blocks; }
  static ZINC_DEVICE unsigned place(unsigned, unsigned word) { return word % 4 * 2 + word / 4; }

  uint32_t codes[2][aligned_blocks];
  uint32_t exponents[2];

  ZINC_DEVICE void load(SharedAddress row) {
    constexpr uint32_t own = 0x3210u;
    constexpr uint32_t left[3] = {0x7650u, 0x7610u, 0x7210u};
    const unsigned part = lane_id() % 4;
    const SharedAddress from = row + 4 * part;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned at = i * aligned_blocks * Mxfp4::block_bytes;
      exponents[i] = (row + (at + part * Mxfp4::block_bytes)).load_byte();
      uint32_t before = (row + at).load();
#pragma unroll
      for (unsigned j = 0; j < aligned_blocks - 1; ++j) {
        const uint32_t word = (from + (at + 16 * j + 4)).load();
        codes[i][j] = permute_bytes(word, before, part == 3 ? left[j] : own);
        before = word;
      }
      codes[i][aligned_blocks - 1] = (from + (at + 52)).load();
    }
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    constexpr uint32_t magnitudes = 0x0E0E0E0Eu;
    constexpr uint32_t signs = 0x80808080u;
    const uint32_t own = codes[i][word % 4];
    const bool upper = word / 4 != 0;
    const uint32_t bytes = ((upper ? own >> 3 : own << 1) & magnitudes) | ((upper ? own : own << 4) & ~magnitudes);
    return __byte_perm(bytes & (magnitudes | signs), 0, odd != 0 ? 0x3414u : 0x2404u);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float scale = columns.scale[i] * power_float<14>();
      sum = fmaf(Mxfp4::power(exponents[i]), dots[i][0] * scale, sum);
    }
    return sum;
  }
};

}  // namespace zinc
