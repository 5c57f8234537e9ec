// The kernels of dmmv_fused.cuh on the int8 tensor cores.
#pragma once

#include "zinc/dmmv_fused.cuh"
#include "zinc/dmmv_tiles.cuh"

namespace zinc {

// y[r] += scale * dot for one vector.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles_add_scaled(const uint8_t* weights, const uint8_t* x, uint8_t* y, float scale,
                                       const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec_tiles<Tiles, Shape, rows, tile_columns>(memory, matrix, p.m, p.k,
                                                 ActivationVectors{at_byte<float>(x, p.x_offset), 0, 1}, blockIdx.x,
                                                 gridDim.x, AddScaledRow{at_byte<float>(y, p.y_offset), scale});
}

// y[r] = Activation(gate row r . x, up row r . x); gate and up are the first rows of matrices of equal shape.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Activation>
ZINC_DEVICE void dmmv_tiles_gate_up(const uint8_t* gate, const uint8_t* up, uint32_t m, uint32_t k, const float* x,
                                    float* y) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const uint8_t* const matrix[] = {gate, up};
  matvec_tiles<Tiles, Shape, rows, tile_columns>(memory, matrix, m, k, ActivationVectors{x, 0, 1}, blockIdx.x,
                                                 gridDim.x, StoreGated<Activation>{y});
}

// Two matrices of m0 and m1 rows applied to the same vector. The blocks are divided between them as their rows are.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0,
                                 uint8_t* y1, const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const float share = static_cast<float>(p.m0) / (static_cast<float>(p.m0) + static_cast<float>(p.m1));
  const uint32_t rounded = static_cast<uint32_t>(share * static_cast<float>(gridDim.x) + 0.5f);
  // A matrix with rows has a block, if there are two: the grid has at least one for the tiles of each.
  const uint32_t first = p.m1 == 0 ? gridDim.x : p.m0 == 0 ? 0 : max(min(rounded, gridDim.x - 1), 1u);
  const bool second = blockIdx.x >= first;
  const uint8_t* const matrix[] = {second ? weights1 + p.a1_offset : weights0 + p.a0_offset};
  float* const y = second ? at_byte<float>(y1, p.y1_offset) : at_byte<float>(y0, p.y0_offset);
  matvec_tiles<Tiles, Shape, rows, tile_columns>(
      memory, matrix, second ? p.m1 : p.m0, p.k, ActivationVectors{at_byte<float>(x, p.x_offset), 0, 1},
      second ? blockIdx.x - first : blockIdx.x, second ? gridDim.x - first : first, StoreRow{y, 0, false});
}

}  // namespace zinc
