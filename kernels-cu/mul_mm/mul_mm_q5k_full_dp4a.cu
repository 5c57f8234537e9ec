// D = A B for a q5_K matrix and n tokens quantized to int8: exact integer sums per block of columns.
// Grid: x over tiles of `rows` rows, y over tiles of `tokens` tokens; a thread owns 4 rows of 8 tokens of a tile.
//@ tile = { rows = 64, tokens = 64, threads = 128, blocks = 3 }
//@ block = ["threads"]
//@ grid = ["ceil_div(m, rows)", "min(ceil_div(n, tokens), 65535)"]
#include "zinc/mul_mm_q5k_full_dp4a.h"

#include "zinc/mul_mm_int8.cuh"
#include "zinc/quant/q5_k.cuh"

namespace tile = mul_mm_q5k_full_dp4a_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q5k_full_dp4a(const uint8_t* a, const uint32_t* b_packed, const float* b_scale_dsum, float* d,
                         mul_mm_q5k_full_dp4a_push p) {
  using Shape = zinc::Int8Shape<tile::rows, tile::tokens, tile::threads>;
  zinc::mul_mm_int8<zinc::Q5K, Shape, zinc::ScaleSumPairs>(a, b_packed, b_scale_dsum, d, p);
}
