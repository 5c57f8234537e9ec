// Matrix-vector products of the experts that a token is routed to, whose matrices are stacked in one tensor.
#pragma once

#include "zinc/dmmv.cuh"

namespace zinc {

// For every routing slot j, row r: y[j m + r] = row r of expert routing[j] times the vector at x + j x_expert_stride.
// Grid: x over row groups, y over slots; both are walked with the grid's stride. Ids are the caller's responsibility.
template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                          const Push& p) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  Activations<Tile, Shape::threads> activations(tile, p.k, {nullptr, 0, 0});
  for (uint32_t slot = blockIdx.y; slot < p.n_slots; slot += gridDim.y) {
    activations.retarget({at_byte<float>(x, p.x_offset) + uint64_t{slot} * p.x_expert_stride, 0, 1});
    const uint8_t* const matrix[] = {weights + uint64_t{routing[slot]} * p.expert_stride};
    matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x,
                  StoreRow{at_byte<float>(y, p.y_offset) + uint64_t{slot} * p.m, 0, false});
  }
}

}  // namespace zinc
