// Per routing slot y_j = gelu(G_e x) * (U_e x) for stacked q4_K experts, up rows after the gate rows of each.
// Of at most `few` weights in all slots, and of `copied` columns: grid y over slots, x over up to 32 rows, so many that
// all multiprocessors have a block; see dmmv_copied.cuh. Of other columns: x over 16 rows; see dmmv_few_halves.cuh.
// Else: grid y over slots; x over tiles of 16 * sets rows of the slot's expert, walked with the grid's stride; the
// steps of 256 columns of a tile are dealt out to the warps of a block; see dmmv_moe_tiles.cuh. Each warp makes int8
// planes of its part of the vector, `steps` steps at most; longer, misaligned or extreme ones go through f32 arithmetic
// in stretches of `columns` columns.
#include "zinc/dmmv_q4k_moe_fused_gate_up_geglu.h"

#include "zinc/dmmv_copied.cuh"
#include "zinc/dmmv_few_halves.cuh"
#include "zinc/dmmv_moe_tiles.cuh"
#include "zinc/quant/k_pair.cuh"
#include "zinc/quant/q4_k_copied.cuh"
#include "zinc/quant/q4_k_tiles.cuh"

namespace tile = dmmv_q4k_moe_fused_gate_up_geglu_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_q4k_moe_fused_gate_up_geglu(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                                     dmmv_q4k_moe_fused_gate_up_geglu_push p) {
  if constexpr (tile::copied > 0) {
    const uint32_t misfit = p.expert_stride % 16 + p.up_offset % 16;
    if (zinc::is_copied_set<zinc::CopiedQ4K>(p.n_slots, p.m, p.k, p.k, misfit, tile::copied, tile::few)) {
      zinc::dmmv_moe_gated<zinc::CopiedExperts<zinc::CopiedQ4K, 32>, zinc::GeGlu>(weights, weights + p.up_offset, x, 0,
                                                                                  y, routing, p);
      return;
    }
  }
  if constexpr (tile::few > 0) {
    if (zinc::is_few_staged(p.n_slots, p.m, p.k, p.k, p.expert_stride % 16 + p.up_offset % 16, tile::few)) {
      // Where the compiler knows that both lie in one tensor it asks for the vector after the weights: 0.3 us of 5.4.
      const uint8_t* const up = zinc::opaque(weights + p.up_offset);
      using Few = zinc::FewExpertsHalves<zinc::Q4KPair, tile::warps>;
      zinc::dmmv_moe_gated<Few, zinc::GeGlu>(weights, up, x, 0, y, routing, p);
      return;
    }
  }
  using Shape = zinc::ExpertShape<tile::warps, tile::steps, tile::head, tile::sets>;
  using Slots = zinc::TileSlots<zinc::Q4KTiles, Shape, tile::rows, tile::columns>;
  zinc::dmmv_moe_gated<Slots, zinc::GeGlu>(weights, weights + p.up_offset, x, 0, y, routing, p);
}
