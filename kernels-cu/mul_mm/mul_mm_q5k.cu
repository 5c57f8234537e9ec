// D = A B for a q5_K matrix and n f32 tokens.
// Grid: x over tiles of `rows` rows, y over tiles of `tokens` tokens; a thread owns 4 rows of 8 tokens of a tile.
//@ tile = { rows = 64, tokens = 64, threads = 128, blocks = 4 }
//@ block = ["threads"]
//@ grid = ["ceil_div(m, rows)", "min(ceil_div(n, tokens), 65535)"]
#include "zinc/mul_mm_q5k.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q5_k.cuh"

namespace tile = mul_mm_q5k_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q5k(const uint8_t* a, const float* b, float* d, mul_mm_q5k_push p) {
  using Shape = zinc::MulMmShape<tile::rows, tile::tokens, tile::threads>;
  zinc::mul_mm<zinc::Q5K, Shape>(a, b, d, p);
}
