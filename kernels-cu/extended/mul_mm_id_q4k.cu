// Per routed pair of token and slot: row vector of d = A_e b for stacked q4_K expert matrices, e from the id table.
// Grid: x over tiles of `rows` rows, y over experts, z over tiles of `tokens` pairs where blocks would be few; a warp
// owns `warp_rows` rows of 32 pairs.
#include "zinc/mul_mm_id_q4k.h"

#include "zinc/mul_mm_id.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = mul_mm_id_q4k_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_id_q4k(const uint8_t* a, const float* b, float* d, const uint32_t* ids, const uint32_t* expert_count,
                  mul_mm_id_q4k_push p) {
  using Shape = zinc::HalfShape<tile::rows, tile::tokens, tile::threads, 1, tile::warp_rows>;
  zinc::mul_mm_id<zinc::Q4K, Shape, tile::shared_bytes>(a, b, d, ids, expert_count, p);
}
