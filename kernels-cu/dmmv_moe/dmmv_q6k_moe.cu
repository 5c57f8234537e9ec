// Per routing slot y_j = W_e x_j for stacked q6_K expert matrices; e = routing[j], x_j shared or one per slot.
// Of at most `few` weights in all slots, and of `copied` columns: grid y over slots, x over up to `copied_rows` rows,
// so many that all multiprocessors have a block; see dmmv_copied.cuh. Else: grid y over slots; x over tiles of 16 *
// sets rows of the slot's expert, walked with the grid's stride; the steps of 256 columns of a tile are dealt out to
// the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8 planes of its part of the vector, `steps` steps at
// most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q6k_moe.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/q6_k_copied.cuh"
#include "zinc/quant/q6_k_tiles.cuh"

namespace tile = dmmv_q6k_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q6k_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing, dmmv_q6k_moe_push p) {
  if constexpr (tile::copied > 0) {
    const uint32_t misfit = p.expert_stride % 16 + p.x_offset % 16 + p.x_expert_stride % 4;
    if (zinc::is_copied_set<zinc::CopiedQ6K>(p.n_slots, p.m, p.k, p.k, misfit, tile::copied, tile::few)) {
      zinc::dmmv_moe<zinc::CopiedExperts<zinc::CopiedQ6K, tile::copied_rows>>(weights, x, y, routing, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q6KTiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe<Slots>(weights, x, y, routing, p);
}
