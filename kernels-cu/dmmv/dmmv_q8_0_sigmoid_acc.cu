// y += sigmoid(gate) W x for a q8_0 matrix, one f32 vector and one gate logit.
// Matrices of at most `few` weights: grid x over groups of `few_rows` rows, see dmmv_few.cuh. Else:
// Grid: x, persistent blocks that walk over tiles of 16 rows. See dmmv_tiles.cuh. A tile has `split`
// warps of a block, or more where tiles are few. The block makes int8 planes of x in shared memory, `steps` * 256
// columns at most; longer, misaligned or extreme ones go through f32 arithmetic in stretches of `columns` columns.
#include "zinc/dmmv_q8_0_sigmoid_acc.h"

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_tiles_fused.cuh"
#include "zinc/quant/q8_0_piece.cuh"
#include "zinc/quant/q8_0_tiles.cuh"

namespace tile = dmmv_q8_0_sigmoid_acc_tile;

ZINC_KERNEL void __launch_bounds__(tile::threads, tile::blocks)
    dmmv_q8_0_sigmoid_acc(const uint8_t* weights, const uint8_t* x, uint8_t* y, const float* gate,
                          dmmv_q8_0_sigmoid_acc_push p) {
  if (zinc::is_few(p.m, p.k, tile::few)) {
    const uint8_t* const matrix = weights + p.a_offset;
    using Few = zinc::FewShape<zinc::Q8_0Piece, tile::few_rows>;
    const zinc::FewPlace<Few> place(p.k);
    zinc::prefetch_few(matrix, p.m, p.k, place);
    ZINC_DYNAMIC_SHARED(float, partial);
    float scale = 0.0f;
    zinc::few_rows(
        partial, place, zinc::FewMatrices<1>{{matrix}, zinc::at_byte<float>(x, p.x_offset), p.k}, p.m,
        zinc::few_row_bytes<Few>(p.k),
        [&](zinc::FewMatrices<1>&) {
          const zinc::NothingEarly reads;
          scale = zinc::sigmoid(gate[p.gate_offset]);
          return reads;
        },
        [&](uint32_t r, unsigned v, const float (&dots)[1]) {
          zinc::AddScaledRow{zinc::at_byte<float>(y, p.y_offset), scale}(r, v, dots);
        });
    return;
  }
  zinc::wait_for_previous();
  using Shape = zinc::TileShape<tile::warps, tile::split, tile::stages, tile::steps, tile::head>;
  zinc::dmmv_tiles_add_scaled<zinc::Q8_0Tiles, Shape, tile::rows, tile::columns>(weights, x, y,
                                                                                 zinc::sigmoid(gate[p.gate_offset]), p);
}
