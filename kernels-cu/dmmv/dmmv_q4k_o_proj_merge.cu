// y = W a or y += W a for a q4_K matrix, a being the merged partial results of split attention.
// Grid: x, persistent blocks that walk over groups of warps * rows rows; each warp has `rows` of them, each lane every
// 32nd unit of 32 columns. Every block merges for itself and stages a in shared memory, all of it,
// since k is at most 4096.
#include "zinc/dmmv_q4k_o_proj_merge.h"

#include "zinc/attention_merge.cuh"
#include "zinc/quant/q4_k.cuh"

namespace tile = dmmv_q4k_o_proj_merge_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_o_proj_merge(const uint8_t* weights, const float* partial, uint8_t* y, const float* sinks,
                          dmmv_q4k_o_proj_merge_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows>;
  zinc::dmmv_merged<zinc::Q4K, Shape, tile::columns>(weights, partial, y, sinks, p);
}
