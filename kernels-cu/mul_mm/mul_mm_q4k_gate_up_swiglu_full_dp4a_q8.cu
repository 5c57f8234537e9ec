// silu(G B) * (U B) for two q4_K matrices and n tokens quantized to int8, quantized to int8 again per 32 rows.
// Grid: x over tiles of `rows` rows, y over tiles of `tokens` tokens; a thread owns 4 rows of 8 tokens of a tile.
//@ tile = { rows = 64, tokens = 64, threads = 128, blocks = 2 }
//@ block = ["threads"]
//@ grid = ["ceil_div(m, rows)", "min(ceil_div(n, tokens), 65535)"]
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8.h"

#include "zinc/mul_mm_int8.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(const uint8_t* a_gate, const uint8_t* a_up, const uint32_t* b_packed,
                                           const float* b_scale_dsum, uint32_t* d_packed, float* d_scale,
                                           mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_push p) {
  using Shape = zinc::Int8Shape<tile::rows, tile::tokens, tile::threads>;
  zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Shape, zinc::SingleScales>(a_gate, a_up, b_packed, b_scale_dsum,
                                                                             d_packed, d_scale, p);
}
