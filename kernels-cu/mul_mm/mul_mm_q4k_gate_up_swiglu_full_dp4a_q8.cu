// silu(G B) * (U B) for two q4_K matrices and n tokens quantized to int8, quantized to int8 again per 32 rows.
// Grid: x over tiles of `rows` rows of both matrices by `tokens` tokens, tokens first; a thread owns 4 * row_fours rows
// of 8 tokens.
//@ tile = { rows = 32, tokens = 128, threads = 128, step = 64, row_fours = 1, blocks = 2, shared_bytes = 34816 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, rows) * ceil_div(n, tokens), 2147483647)"]
//@ shared = "shared_bytes"
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8.h"

#include "zinc/mul_mm_int8.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full_dp4a_q8(const uint8_t* a_gate, const uint8_t* a_up, const uint32_t* b_packed,
                                           const float* b_scale_dsum, uint32_t* d_packed, float* d_scale,
                                           mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_push p) {
  using Shape = zinc::Int8Shape<tile::rows, tile::tokens, tile::threads, tile::step, tile::row_fours>;
  zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Shape, zinc::SingleScales, tile::shared_bytes>(
      a_gate, a_up, b_packed, b_scale_dsum, d_packed, d_scale, p);
}
