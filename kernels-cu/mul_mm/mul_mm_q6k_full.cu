// D = A B for a q6_K matrix and n f32 tokens.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first; a warp owns 64 of the rows for 32 tokens, or,
// by wgmma, 32 rows for all tokens, the last tiles in smaller ones where they are few.
#include "zinc/mul_mm_q6k_full.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q6_k.cuh"

namespace tile = mul_mm_q6k_full_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q6k_full(const uint8_t* a, const float* b, float* d, mul_mm_q6k_full_push p) {
  using Shape = zinc::FloatTiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::threads>;
  zinc::mul_mm<zinc::Q6K, Shape, tile::shared_bytes>(a, b, d, p);
}
