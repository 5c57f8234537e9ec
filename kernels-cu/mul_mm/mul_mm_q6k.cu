// D = A B for a q6_K matrix and n f32 tokens.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first; a warp owns 64 of the rows for 32 tokens, or,
// by wgmma, 32 rows for all tokens, in smaller tiles where these are few.
//@ tile = { rows = 128, tokens = 32, small_rows = 128, small_tokens = 32, few = 0, threads = 64, blocks = 1, shared_bytes = 53264 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, rows) * ceil_div(n, tokens), 2147483647)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 128, tokens = 64, threads = 128, blocks = 1, shared_bytes = 69648 }
//@ [arch.90]
//@ tile = { rows = 128, tokens = 128, threads = 256, blocks = 1, shared_bytes = 102416 }
//@ [arch.90a]
//@ tile = { rows = 256, tokens = 128, small_rows = 128, small_tokens = 64, few = 64, threads = 384, blocks = 1, shared_bytes = 232448 }
//@ grid = ["min(ceil_div(m, rows) * ceil_div(n, tokens) < few ? ceil_div(m, small_rows) * ceil_div(n, small_tokens) : ceil_div(m, rows) * ceil_div(n, tokens), 2147483647)"]
//@ [arch.120]
//@ tile = { rows = 128, tokens = 64, threads = 128, blocks = 1, shared_bytes = 69648 }
#include "zinc/mul_mm_q6k.h"

#include "zinc/mul_mm.cuh"
#include "zinc/quant/q6_k.cuh"

namespace tile = mul_mm_q6k_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q6k(const uint8_t* a, const float* b, float* d, mul_mm_q6k_push p) {
  using Shape =
      zinc::FloatTiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm<zinc::Q6K, Shape, tile::shared_bytes>(a, b, d, p);
}
