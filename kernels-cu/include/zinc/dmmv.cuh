// Matrix-vector products of quantized matrices with f32 vectors: the skeletons that kernels instantiate with a format,
// a shape and what to do with a finished row.
#pragma once

#include "zinc/dmmv_dot.cuh"
#include "zinc/dmmv_rows.cuh"

namespace zinc {

// matvec with the loads chosen.
template <bool wide, class Shape, unsigned matrices, class Tile, class Source, class Finish>
ZINC_DEVICE void matvec_loading(const uint8_t* const (&matrix)[matrices], uint32_t m,
                                Activations<Tile, Shape::threads, Source>& x, uint32_t group, uint32_t step,
                                Finish finish) {
  using Format = typename Tile::Format;
  constexpr unsigned rows = matrices * Shape::rows;
  for_row_groups<Shape>(
      matrix, row_bytes<Format>(x.columns()), m, group, step,
      [&](float (&sum)[rows][Shape::vectors], const uint8_t* const(&row)[rows]) { dot_rows<wide>(sum, row, x); },
      finish);
}

// Products of `matrices` matrices of m rows with the same vectors, for the row groups `group`, group + step, ...; see
// for_row_groups for finish. Wide loads are used where all matrices are aligned for them.
template <class Shape, unsigned matrices, class Tile, class Source, class Finish>
ZINC_DEVICE void matvec(const uint8_t* const (&matrix)[matrices], uint32_t m,
                        Activations<Tile, Shape::threads, Source>& x, uint32_t group, uint32_t step, Finish finish) {
  using Format = typename Tile::Format;
  static_assert(Tile::vectors == Shape::vectors);
  if constexpr (Format::wide_alignment > Format::alignment) {
    bool wide = true;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) wide = wide && is_aligned(matrix[i], Format::wide_alignment);
    if (wide) {
      matvec_loading<true, Shape>(matrix, m, x, group, step, finish);
      return;
    }
  }
  matvec_loading<false, Shape>(matrix, m, x, group, step, finish);
}

// The plain contract: y[r] = dot, or y[r] += dot where acc_mode is not 0, for one vector.
template <class Shape, class Tile, class Push>
ZINC_DEVICE void dmmv_in(Tile& tile, const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  Activations<Tile, Shape::threads> activations(tile, p.k, {at_byte<float>(x, p.x_offset), 0, 1});
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x,
                StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

template <class Format, class Shape, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  using Tile = ActivationTile<Format, tile_columns, 1>;
  ZINC_SHARED(Tile, tile);
  dmmv_in<Shape>(tile, weights, x, y, p);
}

// The batch contract: Y[r, j] = dot(r, j) for j < vectors, vector j being the k floats at x_offset + 4 j k, its results
// the m floats at y_offset + 4 j m. Shape::vectors of them share one pass over the matrix.
template <class Shape, class Tile, class Push>
ZINC_DEVICE void dmmv_batch_in(Tile& tile, const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p,
                               uint32_t vectors) {
  Activations<Tile, Shape::threads> activations(tile, p.k, {nullptr, 0, 0});
  const uint8_t* const matrix[] = {weights + p.a_offset};
  for (uint32_t first = 0; first < vectors; first += Shape::vectors) {
    const uint32_t count = min(vectors - first, Shape::vectors);
    activations.retarget({at_byte<float>(x, p.x_offset) + uint64_t{first} * p.k, p.k, count});
    const StoreRow store{at_byte<float>(y, p.y_offset) + uint64_t{first} * p.m, p.m, false};
    matvec<Shape>(matrix, p.m, activations, blockIdx.x, gridDim.x, [=](uint32_t r, unsigned v, const float (&dots)[1]) {
      if (v < count) store(r, v, dots);
    });
  }
}

}  // namespace zinc
