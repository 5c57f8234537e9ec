// Per routed pair of token and slot: row vector of d = A_e b for stacked q4_K expert matrices, e from the id table.
// Grid: x over tiles of `rows` rows, y over experts; a block works off the pairs of its expert `tokens` at a time, a
// warp owns 64 rows of 32 pairs.
//@ tile = { rows = 128, tokens = 32, threads = 64, blocks = 1, shared_bytes = 57376 }
//@ block = ["threads"]
//@ grid = ["ceil_div(m, rows)", "min(n_experts, 65535)"]
//@ shared = "shared_bytes"
//@ [arch.80]
//@ tile = { rows = 128, tokens = 64, threads = 128, blocks = 1, shared_bytes = 75808 }
#include "zinc/mul_mm_id_q4k.h"

#include "zinc/mul_mm_id.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_id_q4k_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_id_q4k(const uint8_t* a, const float* b, float* d, const uint32_t* ids, const uint32_t* expert_count,
                  mul_mm_id_q4k_push p) {
  using Shape = zinc::HalfShape<tile::rows, tile::tokens, tile::threads>;
  zinc::mul_mm_id<zinc::Q4K, Shape, tile::shared_bytes>(a, b, d, ids, expert_count, p);
}
