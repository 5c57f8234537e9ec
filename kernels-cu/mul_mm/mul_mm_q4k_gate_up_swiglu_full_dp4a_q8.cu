// silu(G B) * (U B) for two q4_K matrices and n tokens quantized to int8, quantized to int8 again per 32 rows.
// Grid: x over tiles of `rows` rows of both matrices by `tokens` tokens, tokens first, or over smaller ones where these
// are few.
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8.h"

#include "zinc/mul_mm_int8.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(const uint8_t* a_gate, const uint8_t* a_up, const uint32_t* b_packed,
                                           const float* b_scale_dsum, uint32_t* d_packed, float* d_scale,
                                           mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_push p) {
  using Tiles =
      zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Tiles, zinc::SingleScales, tile::shared_bytes>(
      a_gate, a_up, b_packed, b_scale_dsum, d_packed, d_scale, p);
}
