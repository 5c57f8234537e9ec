// Dot products of quantized rows with staged f32 activations: what one warp does.
#pragma once

#include "zinc/dmmv_activations.cuh"

namespace zinc {

// Adds this lane's share of the products of `rows` rows with the staged stretch to `sum`. Lane l takes the units l,
// l + 32, ... of the stretch; all lanes together make the dot product. `row` points at the first block of the stretch.
template <bool wide, unsigned rows, class Tile>
ZINC_DEVICE void add_stretch(float (&sum)[rows][Tile::vectors], const uint8_t* const (&row)[rows], const Tile& tile,
                             uint32_t units) {
  using Format = typename Tile::Format;
  using Unit = typename Format::Unit;
  constexpr unsigned block_units = Format::block_columns / unit_columns;
  for (uint32_t unit = lane_id(); unit < units; unit += warp_size) {
    Unit weights[rows];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      weights[r] = Format::template load<wide>(row[r] + unit / block_units * Format::block_bytes, unit % block_units);
    }
    decltype(weights[0].scales()) factors[rows];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) factors[r] = weights[r].scales();
#pragma unroll
    for (unsigned run = 0; run < 2; ++run) {
      // Quants first, the scale once per run: the inner loop is one multiply-add per weight and vector.
      float products[rows][Tile::vectors] = {};
#pragma unroll
      for (unsigned i = 0; i < run_words; ++i) {
        float4 x[Tile::vectors];
#pragma unroll
        for (unsigned v = 0; v < Tile::vectors; ++v) x[v] = tile.values[v][run_words * run + i][unit];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) {
          const uint32_t word = weights[r].word(run, i);
          const float q[4] = {Format::Quants::to_float(word, 0), Format::Quants::to_float(word, 1),
                              Format::Quants::to_float(word, 2), Format::Quants::to_float(word, 3)};
#pragma unroll
          for (unsigned v = 0; v < Tile::vectors; ++v) {
            float& p = products[r][v];
            p = fmaf(q[0], x[v].x, p);
            p = fmaf(q[1], x[v].y, p);
            p = fmaf(q[2], x[v].z, p);
            p = fmaf(q[3], x[v].w, p);
          }
        }
      }
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
        for (unsigned v = 0; v < Tile::vectors; ++v) {
          sum[r][v] = fmaf(factors[r].scale[run], products[r][v], sum[r][v]);
          if constexpr (Format::has_minimum) {
            sum[r][v] = fmaf(-factors[r].minimum[run], tile.sums[v][run][unit], sum[r][v]);
          }
        }
      }
    }
  }
}

// This lane's share of the dot products of whole rows; the block's threads stage the activations together, so all of
// them must be here with the same number of columns.
template <bool wide, unsigned rows, class Tile, unsigned threads, class Source>
ZINC_DEVICE void dot_rows(float (&sum)[rows][Tile::vectors], const uint8_t* const (&row)[rows],
                          Activations<Tile, threads, Source>& x) {
  using Format = typename Tile::Format;
  for (uint32_t first = 0; first < x.columns(); first += Tile::columns) {
    x.stage(first);
    const uint8_t* here[rows];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      here[r] = row[r] + uint64_t{first / Format::block_columns} * Format::block_bytes;
    }
    add_stretch<wide>(sum, here, x.tile, min(x.columns() - first, Tile::columns) / unit_columns);
  }
}

}  // namespace zinc
