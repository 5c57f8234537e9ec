// silu(G B) * (U B) for two q4_K matrices and n tokens quantized to int8, quantized to int8 again per 32 rows.
// Grid: x over tiles of `rows` rows of both matrices by `tokens` tokens, tokens first, or over smaller ones where these
// are few.
//@ tile = { rows = 32, tokens = 64, small_rows = 32, small_tokens = 64, few = 0, threads = 64, blocks = 2, shared_bytes = 45000 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, small_rows) * ceil_div(n, small_tokens), 2147483647)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 64, tokens = 64, small_rows = 64, small_tokens = 64, few = 0, threads = 128, blocks = 2, shared_bytes = 84496 }
//@ [arch.90a]
//@ tile = { rows = 32, tokens = 256, small_rows = 32, small_tokens = 128, few = 100, threads = 384, blocks = 1, shared_bytes = 138224 }
//@ grid = ["min(ceil_div(m, small_rows) * ceil_div(n, small_tokens), sm_count)"]
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1.h"

#include "zinc/mul_mm_int8.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1(const uint8_t* a_gate, const uint8_t* a_up, const uint32_t* b_packed,
                                             const float* b_scale_dsum, uint32_t* d_packed, float* d_scale_dsum,
                                             mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1_push p) {
  using Tiles =
      zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Tiles, zinc::ScaleSumPairs, tile::shared_bytes>(
      a_gate, a_up, b_packed, b_scale_dsum, d_packed, d_scale_dsum, p);
}
