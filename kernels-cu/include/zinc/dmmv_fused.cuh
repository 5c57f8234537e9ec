// Matrix-vector kernels that do more with one reading of the activations: two matrices, a gate and an up projection
// with their activation, a scaled accumulation.
#pragma once

#include "zinc/dmmv.cuh"
#include "zinc/gated.cuh"

namespace zinc {

// y[r] += scale * dot.
struct AddScaledRow {
  float* y;
  float scale;

  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&dots)[1]) const { y[r] = fmaf(scale, dots[0], y[r]); }
};

// y[r] = Activation(gate, up), once, of the finished sums.
template <class Activation>
struct StoreGated {
  float* y;

  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&dots)[2]) const {
    y[r] = Activation::of(dots[0], dots[1]);
  }
};

// y[r] += s * dot for one vector.
template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_add_scaled(const uint8_t* weights, const uint8_t* x, uint8_t* y, float scale, const Push& p) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  Activations<Tile, Shape::threads> activations(tile, p.k, {at_byte<float>(x, p.x_offset), 0, 1});
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x, AddScaledRow{at_byte<float>(y, p.y_offset), scale});
}

// y[r] = Activation(gate row r . x, up row r . x); gate and up are the first rows of matrices of equal shape.
template <class Format, class Shape, unsigned tile_columns, class Activation>
ZINC_DEVICE void dmmv_gate_up(const uint8_t* gate, const uint8_t* up, uint32_t m, uint32_t k, const float* x,
                              float* y) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  Activations<Tile, Shape::threads> activations(tile, k, {x, 0, 1});
  const uint8_t* const matrix[] = {gate, up};
  matvec<Shape>(matrix, m, activations, blockIdx.x, gridDim.x, StoreGated<Activation>{y});
}

// Two matrices of m0 and m1 rows applied to the same vector. The row groups of both are one sequence, first those of
// matrix 0, which the blocks walk with the grid's stride.
template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0, uint8_t* y1,
                           const Push& p) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  Activations<Tile, Shape::threads> activations(tile, p.k, {at_byte<float>(x, p.x_offset), 0, 1});
  const uint8_t* const first[] = {weights0 + p.a0_offset};
  matvec<Shape>(first, p.m0, activations, blockIdx.x, gridDim.x, StoreRow{at_byte<float>(y0, p.y0_offset), 0, false});
  // This block's first group that is not one of matrix 0.
  const uint64_t groups = (uint64_t{p.m0} + Shape::group - 1) / Shape::group;
  const uint64_t steps = groups > blockIdx.x ? (groups - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  const uint32_t group = static_cast<uint32_t>(blockIdx.x + steps * gridDim.x - groups);
  const uint8_t* const second[] = {weights1 + p.a1_offset};
  matvec<Shape>(second, p.m1, activations, group, gridDim.x, StoreRow{at_byte<float>(y1, p.y1_offset), 0, false});
}

}  // namespace zinc
