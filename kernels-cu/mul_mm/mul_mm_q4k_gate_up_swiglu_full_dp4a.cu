// D = silu(G B) * (U B) for two q4_K matrices of equal shape and n tokens quantized to int8.
// Grid: x over tiles of `rows` rows of both matrices by `tokens` tokens, tokens first, or over smaller ones where these
// are few.
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a.h"

#include "zinc/mul_mm_int8.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_dp4a_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full_dp4a(const uint8_t* a_gate, const uint8_t* a_up, const uint32_t* b_packed,
                                        const float* b_scale_dsum, float* d,
                                        mul_mm_q4k_gate_up_swiglu_full_dp4a_push p) {
  using Tiles =
      zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_int8_swiglu<zinc::Q4K, Tiles, tile::shared_bytes>(a_gate, a_up, b_packed, b_scale_dsum, d, p);
}
