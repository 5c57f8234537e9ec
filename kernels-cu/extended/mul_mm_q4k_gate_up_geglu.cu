// D = gelu(G B) * (U B) for two q4_K matrices of equal shape and n f32 tokens.
// Grid: x over tiles of `rows` rows, half of them of each matrix, by `tokens` tokens, tokens first; a warp owns 64 of
// the rows for 32 tokens, or, by wgmma, 32 rows for all tokens, the last tiles in smaller ones where they are few.
#include "zinc/mul_mm_q4k_gate_up_geglu.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_q4k_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_gate_up_geglu(const uint8_t* a_gate, const uint8_t* a_up, const float* b, float* d,
                             mul_mm_q4k_gate_up_geglu_push p) {
  using Shape = zinc::FloatTiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::threads, 2>;
  zinc::mul_mm_gate_up<zinc::Q4K, Shape, zinc::GeGlu, tile::shared_bytes>(a_gate, a_up, b, d, p);
}
