// D = A B for a q6_K matrix and n tokens quantized to int8: exact integer sums per block of columns.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first; a thread owns 4 * row_fours rows of 8 tokens.
//@ tile = { rows = 64, tokens = 64, threads = 128, step = 128, row_fours = 1, blocks = 1, shared_bytes = 43072 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, rows) * ceil_div(n, tokens), 2147483647)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 128, tokens = 128, threads = 256, step = 128, row_fours = 2, blocks = 1, shared_bytes = 86080 }
#include "zinc/mul_mm_q6k_full_dp4a.h"

#include "zinc/mul_mm_int8.cuh"
#include "zinc/quant/q6_k.cuh"

namespace tile = mul_mm_q6k_full_dp4a_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q6k_full_dp4a(const uint8_t* a, const uint32_t* b_packed, const float* b_scale, float* d,
                         mul_mm_q6k_full_dp4a_push p) {
  using Shape = zinc::Int8Shape<tile::rows, tile::tokens, tile::threads, tile::step, tile::row_fours>;
  zinc::mul_mm_int8<zinc::Q6K, Shape, zinc::SingleScales, tile::shared_bytes>(a, b_packed, b_scale, d, p);
}
