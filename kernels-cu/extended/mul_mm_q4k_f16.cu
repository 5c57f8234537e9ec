// D = A B for a q4_k matrix and n tokens in binary16, as pack_act_f16 writes them.
// Grid: x over tiles of `rows` rows by `tokens` tokens, tokens first; a warp owns its rows for all tokens of the tile.
// By wgmma, blocks walk over the tiles, which have fewer tokens where there are no more of these, or few tiles.
#include "zinc/mul_mm_q4k_f16.h"

#include "zinc/mul_mm_f16.cuh"

namespace tile = mul_mm_q4k_f16_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    mul_mm_q4k_f16(const uint8_t* a, const uint8_t* h, const float* scale, float* d, mul_mm_q4k_f16_push p) {
  using Tiles = zinc::F16Tiles<tile::rows, tile::tokens, tile::small_tokens, tile::few, tile::threads>;
  zinc::mul_mm_f16<zinc::Q4K, Tiles, tile::shared_bytes>(a, h, scale, d, p);
}
