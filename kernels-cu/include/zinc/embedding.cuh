// Elements of a table row in the formats that token embeddings come in, each product and difference rounded to f32 on
// its own, so that the values are those of a CPU dequantiser bit for bit. Every function gives the elements e .. e +
// width - 1 of the row, e a multiple of the width, which is 1 or 4: four elements never leave a group of one scale.
#pragma once
#include "zinc/half.cuh"
#include "zinc/span.cuh"

namespace zinc {

// A 16-bit field. Rows of the quantized formats are 2-byte aligned.
ZINC_DEVICE uint32_t halfword_at(const uint8_t* at) { return *reinterpret_cast<const uint16_t*>(at); }
ZINC_DEVICE float half_at(const uint8_t* at) { return half_to_float(*reinterpret_cast<const uint16_t*>(at)); }

// `width` bytes, the first one lowest; four are 2-byte aligned.
template <unsigned width>
ZINC_DEVICE uint32_t bytes_at(const uint8_t* at) {
  static_assert(width == 1 || width == 4, "one byte or a word of two halves");
  if (width == 1) return *at;
  return halfword_at(at) | halfword_at(at + 2) << 16;
}

// Byte i of a word, less `bias`, as a float: as the low bits of 2^23 + byte, from which 2^23 + bias is subtracted
// exactly. The conversion instructions have a quarter of the throughput.
ZINC_DEVICE float byte_less(uint32_t bytes, unsigned i, unsigned bias) {
  constexpr uint32_t two_to_23 = 0x4b000000u;
  return __uint_as_float(__byte_perm(bytes, two_to_23, 0x7650 | i)) - (8388608.0f + static_cast<float>(bias));
}

template <unsigned width>
ZINC_DEVICE Pack<float, width> embedding_f32(const uint8_t* row, uint32_t e) {
  return Span<width>{e}.of(reinterpret_cast<const float*>(row));
}

template <unsigned width>
ZINC_DEVICE Pack<float, width> embedding_f16(const uint8_t* row, uint32_t e) {
  return each([](uint16_t bits) { return half_to_float(bits); },
              Span<width>{e}.of(reinterpret_cast<const uint16_t*>(row)));
}

template <unsigned width>
ZINC_DEVICE Pack<float, width> embedding_q8_0(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 32;
  constexpr unsigned block_bytes = 34;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  // With the sign bits turned the quants are those plus 128.
  const uint32_t quants = bytes_at<width>(block + 2 + e % block_elements) ^ 0x80808080u;
  const float d = half_at(block);
  Pack<float, width> value;
#pragma unroll
  for (unsigned i = 0; i < width; ++i) {
    value.at[i] = __fmul_rn(byte_less(quants, i, 128), d);
  }
  return value;
}

template <unsigned width>
ZINC_DEVICE Pack<float, width> embedding_q4_k(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 256;
  constexpr unsigned block_bytes = 144;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  const uint8_t* const scales = block + 4;
  const unsigned sub_block = e % block_elements / 32;
  const uint32_t quants =
      bytes_at<width>(block + 16 + sub_block / 2 * 32 + e % 32) >> (sub_block % 2 * 4) & 0x0f0f0f0fu;
  // Eight six-bit scales and eight six-bit minimums in 12 bytes: the last four of each have their upper bits in the
  // first eight bytes.
  unsigned scale;
  unsigned minimum;
  if (sub_block < 4) {
    scale = scales[sub_block] & 63;
    minimum = scales[sub_block + 4] & 63;
  } else {
    scale = (scales[sub_block + 4] & 15) | scales[sub_block - 4] >> 6 << 4;
    minimum = scales[sub_block + 4] >> 4 | scales[sub_block] >> 6 << 4;
  }
  const float d = __fmul_rn(half_at(block), static_cast<float>(scale));
  const float m = __fmul_rn(half_at(block + 2), static_cast<float>(minimum));
  Pack<float, width> value;
#pragma unroll
  for (unsigned i = 0; i < width; ++i) {
    value.at[i] = __fadd_rn(__fmul_rn(d, byte_less(quants, i, 0)), -m);
  }
  return value;
}

template <unsigned width>
ZINC_DEVICE Pack<float, width> embedding_q6_k(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 256;
  constexpr unsigned block_bytes = 210;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  const unsigned half = e % block_elements / 128;
  const unsigned quarter = e % 128 / 32;
  const unsigned l = e % 32;
  const uint32_t low = bytes_at<width>(block + 64 * half + 32 * (quarter % 2) + l) >> (quarter / 2 * 4) & 0x0f0f0f0fu;
  const uint32_t high = bytes_at<width>(block + 128 + 32 * half + l) >> (2 * quarter) & 0x03030303u;
  const uint32_t quants = low | high << 4;
  const int8_t scale = static_cast<int8_t>(block[192 + 8 * half + 2 * quarter + l / 16]);
  const float d = __fmul_rn(half_at(block + 208), static_cast<float>(scale));
  Pack<float, width> value;
#pragma unroll
  for (unsigned i = 0; i < width; ++i) {
    value.at[i] = __fmul_rn(d, byte_less(quants, i, 32));
  }
  return value;
}

// The formats as embed_gather numbers them.
enum class Embedding : uint32_t { f32, f16, q8_0, q4_k, q6_k };

template <Embedding format, unsigned width>
ZINC_DEVICE Pack<float, width> embedding_elements(const uint8_t* row, uint32_t e) {
  switch (format) {
    case Embedding::f32:
      return embedding_f32<width>(row, e);
    case Embedding::f16:
      return embedding_f16<width>(row, e);
    case Embedding::q8_0:
      return embedding_q8_0<width>(row, e);
    case Embedding::q4_k:
      return embedding_q4_k<width>(row, e);
    default:
      return embedding_q6_k<width>(row, e);
  }
}

}  // namespace zinc
