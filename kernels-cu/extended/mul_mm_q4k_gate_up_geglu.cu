// D = gelu(G B) * (U B) for two q4_K matrices of equal shape and n f32 tokens.
// Grid: x over tiles of `rows` rows, y over tiles of `tokens` tokens; a thread owns 4 rows of 8 tokens of a tile.
//@ tile = { rows = 64, tokens = 64, threads = 128, blocks = 2 }
//@ block = ["threads"]
//@ grid = ["ceil_div(m, rows)", "min(ceil_div(n, tokens), 65535)"]
#include "zinc/mul_mm_q4k_gate_up_geglu.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_q4k_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_geglu(const uint8_t* a_gate, const uint8_t* a_up, const float* b, float* d,
                             mul_mm_q4k_gate_up_geglu_push p) {
  using Shape = zinc::MulMmShape<tile::rows, tile::tokens, tile::threads>;
  zinc::mul_mm_gate_up<zinc::Q4K, Shape, zinc::GeGlu>(a_gate, a_up, b, d, p);
}
