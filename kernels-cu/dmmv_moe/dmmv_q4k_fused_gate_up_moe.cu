// Per routing slot G_e x_j and U_e x_j for stacked q4_K gate and up matrices.
// Of at most `few` weights in all slots, and of `copied` columns: grid y over slots, x over up to 32 rows, so many that
// all multiprocessors have a block; see dmmv_copied.cuh. Of other columns: x over 16 rows; see dmmv_few_halves.cuh.
// Else: grid y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the
// steps of 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8
// planes of its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic
// in stretches of `columns` columns.
#include "zinc/dmmv_q4k_fused_gate_up_moe.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_few_halves.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/k_pair.cuh"
#include "zinc/quant/q4_k_copied.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_fused_gate_up_moe_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_fused_gate_up_moe(const uint8_t* w_gate, const uint8_t* w_up, const uint8_t* x, uint8_t* y_gate,
                               uint8_t* y_up, const uint32_t* routing, dmmv_q4k_fused_gate_up_moe_push p) {
  if constexpr (tile::copied > 0) {
    const uint32_t misfit = p.expert_stride % 16;
    if (zinc::is_copied_set<zinc::CopiedQ4K>(p.n_slots, p.m, p.k, p.k, misfit, tile::copied, tile::few)) {
      zinc::dmmv_moe_gate_up<zinc::CopiedExperts<zinc::CopiedQ4K, 32>>(w_gate, w_up, x, y_gate, y_up, routing, p);
      return;
    }
  }
  if constexpr (tile::few > 0) {
    if (zinc::is_few_staged(p.n_slots, p.m, p.k, p.k, p.expert_stride % 16, tile::few)) {
      using Few = zinc::FewExpertsHalves<zinc::Q4KPair, tile::warps>;
      zinc::dmmv_moe_gate_up<Few>(w_gate, w_up, x, y_gate, y_up, routing, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q4KTiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe_gate_up<Slots>(w_gate, w_up, x, y_gate, y_up, routing, p);
}
