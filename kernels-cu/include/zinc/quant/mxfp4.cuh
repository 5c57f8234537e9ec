// MXFP4: 32 columns in 17 bytes, a power of two and 4-bit floats. The values are decoded as GGML does, as twice the
// float in integers times half the power.
#pragma once

#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"

namespace zinc {

struct Mxfp4 {
  static constexpr unsigned block_columns = 32;
  static constexpr unsigned block_bytes = 17;
  static constexpr unsigned run_distance = 16;
  static constexpr unsigned scale_columns = 32;
  static constexpr bool has_minimum = false;
  static constexpr unsigned alignment = 1;
  static constexpr unsigned wide_alignment = 1;
  using Quants = SignedQuants;

  struct ScalePair {
    float scale[2];
  };

  struct Unit {
    uint32_t codes[run_words];
    uint8_t exponent;

    ZINC_DEVICE uint32_t word(unsigned run, unsigned i) const { return doubled(codes[i] >> (4 * run)); }
    ZINC_DEVICE ScalePair scales() const { return {{half_power(exponent), half_power(exponent)}}; }
  };

  template <bool wide>
  static ZINC_DEVICE Unit load(const uint8_t* block, unsigned) {
    Unit u;
    u.exponent = __ldg(block);
    load_any_words(block + 1, u.codes);
    return u;
  }

  // Twice the floats of the codes in the low nibbles of the four bytes, as signed bytes: 0, 1, 2, 3, 4, 6, 8, 12 and
  // their negatives. The upper nibbles may hold anything.
  static ZINC_DEVICE uint32_t doubled(uint32_t codes) {
    // The table look-up takes its four indices from the nibbles of a half word: bytes 0 and 2 of what follows.
    const uint32_t pairs = (codes & 0x0F0F0F0Fu) | ((codes >> 4) & 0xF0F0F0F0u);
    const uint32_t indices = __byte_perm(pairs, pairs, 0x2020u);
    const uint32_t positive = __byte_perm(0x03020100u, 0x0C080604u, indices & 0x7777u);
    const uint32_t negative = __byte_perm(0xFDFEFF00u, 0xF4F8FAFCu, indices & 0x7777u);
    const uint32_t sign = __byte_perm(0x0000FF00u, 0u, (indices >> 3) & 0x1111u);
    return (positive & ~sign) | (negative & sign);
  }

  // 2^(exponent - 127), where that is normal; else 0.
  static ZINC_DEVICE float power(uint32_t exponent) { return __uint_as_float(exponent << 23); }

  // 2^(exponent - 128); the two smallest are subnormal.
  static ZINC_DEVICE float half_power(uint8_t exponent) {
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
  }

  // The numbers of codes i and 4 + i of a word as two halves, which are 2^-14 of them, exactly: exponent and fraction
  // of a code are the last two bits of the one and the first bit of the other.
  template <unsigned i>
  static ZINC_DEVICE uint32_t halves(uint32_t codes) {
    const uint32_t sizes = i < 3 ? codes << (i < 3 ? 9 - 4 * i : 0) : codes >> 3;
    return (sizes & 0x0E000E00u) | (codes << (12 - 4 * i) & 0x80008000u);
  }
  // A sum of products with such halves times the power of their block.
  static ZINC_DEVICE float weighted(float dot, uint8_t exponent) {
    constexpr float doubled_unit = 32768.0f;
    return dot * half_power(exponent) * doubled_unit;
  }

 private:
  // `count` words from an address without alignment: aligned words where they lie below the end, single bytes for what
  // the last word lacks. Reads up to three bytes before p, never beyond the words: a buffer begins 16-byte aligned, so
  // aligned words that hold one of its bytes do not begin before it.
  template <unsigned count>
  static ZINC_DEVICE void load_any_words(const uint8_t* p, uint32_t (&words)[count]) {
    const unsigned shift = static_cast<unsigned>(reinterpret_cast<uint64_t>(p) & 3);
    const uint8_t* const first = p - shift;
    uint32_t last = 0;
    if (shift >= 1) last = __ldg(p + 4 * count - shift);
    if (shift >= 2) last |= uint32_t{__ldg(p + 4 * count - shift + 1)} << 8;
    if (shift >= 3) last |= uint32_t{__ldg(p + 4 * count - 1)} << 16;
    uint32_t lower = load_u32(first);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t upper = i + 1 < count ? load_u32(first + 4 * (i + 1)) : last;
      words[i] = __funnelshift_r(lower, upper, 8 * shift);
      lower = upper;
    }
  }
};
static_assert(Mxfp4::block_bytes == 1 + 16);

}  // namespace zinc
