// D = A B for a q6_K matrix and n tokens quantized to int8: exact integer sums per block of columns.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first, or over smaller ones where these are few.
//@ tile = { rows = 64, tokens = 64, small_rows = 64, small_tokens = 64, few = 0, threads = 128, blocks = 1, shared_bytes = 44096 }
//@ block = ["threads"]
//@ grid = ["min(ceil_div(m, small_rows) * ceil_div(n, small_tokens), 2147483647)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 64, tokens = 128, small_rows = 64, small_tokens = 64, few = 128, threads = 128, blocks = 1, shared_bytes = 91408 }
//@ [arch.90]
//@ tile = { rows = 128, tokens = 256, small_rows = 64, small_tokens = 128, few = 80, threads = 256, blocks = 1, shared_bytes = 182544 }
//@ [arch.100]
//@ tile = { rows = 64, tokens = 128, small_rows = 64, small_tokens = 64, few = 128, threads = 128, blocks = 1, shared_bytes = 91408 }
//@ [arch.90a]
//@ tile = { rows = 64, tokens = 256, small_rows = 64, small_tokens = 128, few = 100, threads = 512, blocks = 1, shared_bytes = 179184 }
//@ grid = ["min(ceil_div(m, small_rows) * ceil_div(n, small_tokens), sm_count)"]
#include "zinc/mul_mm_q6k_full_dp4a_q8_1.h"

#include "zinc/mul_mm_int8.cuh"

namespace tile = mul_mm_q6k_full_dp4a_q8_1_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q6k_full_dp4a_q8_1(const uint8_t* a, const uint32_t* b_packed, const float* b_scale_dsum, float* d,
                              mul_mm_q6k_full_dp4a_q8_1_push p) {
  using Tiles =
      zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_int8<zinc::Q6K, Tiles, zinc::ScaleSumPairs, tile::shared_bytes>(a, b_packed, b_scale_dsum, d, p);
}
