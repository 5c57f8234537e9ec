// D = A B for a q6_K matrix and n tokens quantized to int8: exact integer sums per block of columns.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first, or over smaller ones where these are few.
#include "zinc/mul_mm_q6k_full_dp4a_q8_1.h"

#include "zinc/mul_mm_int8.cuh"

namespace tile = mul_mm_q6k_full_dp4a_q8_1_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q6k_full_dp4a_q8_1(const uint8_t* a, const uint32_t* b_packed, const float* b_scale_dsum, float* d,
                              mul_mm_q6k_full_dp4a_q8_1_push p) {
  using Tiles =
      zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_int8<zinc::Q6K, Tiles, zinc::ScaleSumPairs, tile::shared_bytes>(a, b_packed, b_scale_dsum, d, p);
}
