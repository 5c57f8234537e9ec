// q8_0 as dmmv_copied.cuh multiplies it.
#pragma once

#include "zinc/quant/copied.cuh"
#include "zinc/quant/q8_0.cuh"

namespace zinc {

// The eight blocks of 34 bytes of a step as lanes read them: five times eight bytes around a block, which begins
// 2 * (block % 4) bytes after them. Rows are a multiple of 16 bytes apart and not of 32: of four neighbouring rows,
// what the lanes read lies in all banks.
struct CopiedQ8_0 {
  using Format = Q8_0;
  static constexpr bool across = false;
  static constexpr unsigned sides = 1;
  static constexpr bool keeps_columns = false;
  static constexpr bool has_minimum = false;
  static constexpr bool rotates = true;
  static constexpr unsigned rotation_columns = 32;
  static constexpr unsigned most_rotation = 2;
  static constexpr unsigned step_bytes = step_columns / Q8_0::block_columns * Q8_0::block_bytes;
  static constexpr unsigned row_columns = step_columns;
  static constexpr unsigned pitch = 2192;
  static constexpr unsigned tile_rows = 16;
  static constexpr unsigned room = 3;
  static constexpr unsigned room_of_two = 2;
  static constexpr unsigned ahead = 2;
  static constexpr unsigned ahead_of_two = 1;
  static constexpr bool late = false;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return part % 2 * 4 + part / 2 * 2 + i; }
  static ZINC_DEVICE unsigned rotation(uint32_t, unsigned block) { return block % 2 == 0 ? 2 : 0; }
  static ZINC_DEVICE unsigned place(unsigned block, unsigned word) {
    return block % 4 < 2 || word == 7 ? word : (word + 1) % 7;
  }

  struct Block {
    uint32_t words[8];
    uint32_t factor;

    template <unsigned i>
    ZINC_DEVICE void load(SharedAddress row) {
      constexpr unsigned eight_bytes = 5;
      const unsigned part = lane_id() % 4;
      const SharedAddress from = row + (part % 2 * 136 + part / 2 * 64 + i * 32);
      uint32_t w[2 * eight_bytes];
#pragma unroll
      for (unsigned j = 0; j < eight_bytes; ++j) {
        const uint2 two = (from + 8 * j).load2();
        w[2 * j] = two.x;
        w[2 * j + 1] = two.y;
      }
      // The block's pairs of bytes, in the order of the words that have them, and what is left of the last word after.
      const bool early = part < 2;
      const uint32_t before = early ? w[0] : w[1];
      const uint32_t after = early ? w[8] : w[9];
      words[0] = early ? w[1] : w[8];
#pragma unroll
      for (unsigned j = 1; j < 7; ++j) words[j] = w[j + 1];
      words[7] = i == 0 ? __byte_perm(after, before, 0x7610u) : after;
      factor = i == 0 ? before : before >> 16;
    }
  };
  Block blocks[2];

  ZINC_DEVICE void load(SharedAddress row) {
    for_constants<2>([&](auto i) { blocks[i.index].template load<i.index>(row); });
  }

  template <unsigned i>
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    constexpr uint32_t one = 0x3C003C00u;
    constexpr uint32_t less = 0xE480E480u;  // -1152
    // As the last bits of 1024, with 128 more.
    const uint32_t sums = __byte_perm(blocks[i].words[word] ^ 0x80808080u, 0x64646464u, odd != 0 ? 0x4341u : 0x4240u);
    return exact_halves(sums, one, less);
  }

  template <class Columns>
  ZINC_DEVICE float weighted(const float (&dots)[2][sides], const Columns& columns) const {
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float scale = columns.scale[i];
      sum = fmaf(half_to_float(static_cast<uint16_t>(blocks[i].factor)) * scale, dots[i][0], sum);
    }
    return sum;
  }
};

}  // namespace zinc
