// D = silu(G B) * (U B) for two q4_K matrices of equal shape and n f32 tokens.
// Grid: x over tiles of `rows` rows, half of them of each matrix, by `tokens` tokens, tokens first; a warp owns 64 of
// the rows for 32 tokens.
//@ tile = { rows = 128, tokens = 32, threads = 64, blocks = 1, shared_bytes = 57376 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, rows / 2) * ceil_div(n, tokens), 2147483647)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 128, tokens = 64, threads = 128, blocks = 1, shared_bytes = 75808 }
//@ [arch.90]
//@ tile = { rows = 256, tokens = 64, threads = 256, blocks = 1, shared_bytes = 114720 }
//@ [arch.120]
//@ tile = { rows = 128, tokens = 64, threads = 128, blocks = 1, shared_bytes = 75808 }
#include "zinc/mul_mm_q4k_gate_up_swiglu_full.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_q4k_gate_up_swiglu_full_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_swiglu_full(const uint8_t* a_gate, const uint8_t* a_up, const float* b, float* d,
                                   mul_mm_q4k_gate_up_swiglu_full_push p) {
  using Shape = zinc::HalfShape<tile::rows, tile::tokens, tile::threads, 2>;
  zinc::mul_mm_gate_up<zinc::Q4K, Shape, zinc::SwiGlu, tile::shared_bytes>(a_gate, a_up, b, d, p);
}
