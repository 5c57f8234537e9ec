// Single elements of a table row in the formats that token embeddings come in, each product and difference rounded to
// f32 on its own, so that the values are those of a CPU dequantiser bit for bit.
#pragma once
#include "zinc/half.cuh"

namespace zinc {

// A 16-bit field. Rows of the quantized formats are 2-byte aligned.
ZINC_DEVICE float half_at(const uint8_t* at) { return half_to_float(*reinterpret_cast<const uint16_t*>(at)); }

ZINC_DEVICE float embedding_f32(const uint8_t* row, uint32_t e) { return reinterpret_cast<const float*>(row)[e]; }

ZINC_DEVICE float embedding_f16(const uint8_t* row, uint32_t e) { return half_at(row + 2 * uint64_t{e}); }

ZINC_DEVICE float embedding_q8_0(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 32;
  constexpr unsigned block_bytes = 34;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  const int8_t quant = static_cast<int8_t>(block[2 + e % block_elements]);
  return __fmul_rn(static_cast<float>(quant), half_at(block));
}

ZINC_DEVICE float embedding_q4_k(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 256;
  constexpr unsigned block_bytes = 144;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  const uint8_t* const scales = block + 4;
  const uint8_t* const quants = block + 16;
  const unsigned sub_block = e % block_elements / 32;
  const unsigned byte = quants[sub_block / 2 * 32 + e % 32];
  const unsigned nibble = sub_block % 2 == 0 ? byte & 15 : byte >> 4;
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
  return __fadd_rn(__fmul_rn(d, static_cast<float>(nibble)), -m);
}

ZINC_DEVICE float embedding_q6_k(const uint8_t* row, uint32_t e) {
  constexpr unsigned block_elements = 256;
  constexpr unsigned block_bytes = 210;
  const uint8_t* const block = row + uint64_t{e / block_elements} * block_bytes;
  const unsigned half = e % block_elements / 128;
  const unsigned quarter = e % 128 / 32;
  const unsigned l = e % 32;
  const unsigned low_byte = block[64 * half + 32 * (quarter % 2) + l];
  const unsigned low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
  const unsigned high = block[128 + 32 * half + l] >> (2 * quarter) & 3;
  const int8_t scale = static_cast<int8_t>(block[192 + 8 * half + 2 * quarter + l / 16]);
  const float d = __fmul_rn(half_at(block + 208), static_cast<float>(scale));
  return __fmul_rn(d, static_cast<float>(static_cast<int>(low | high << 4) - 32));
}

// Element e of a row of format qtype, as embed_gather numbers the formats.
ZINC_DEVICE float embedding_element(const uint8_t* row, uint32_t e, uint32_t qtype) {
  switch (qtype) {
    case 0:
      return embedding_f32(row, e);
    case 1:
      return embedding_f16(row, e);
    case 2:
      return embedding_q8_0(row, e);
    case 3:
      return embedding_q4_k(row, e);
    default:
      return embedding_q6_k(row, e);
  }
}

}  // namespace zinc
