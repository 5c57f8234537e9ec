// How the blocks of a grid share the tiles of a matrix-matrix product.
#pragma once

#include "zinc/dmmv_rows.cuh"

namespace zinc {

// The tiles of `rows` x `tokens` outputs in an m by n product.
template <unsigned rows, unsigned tokens>
ZINC_DEVICE uint64_t tile_count(uint32_t m, uint32_t n) {
  return uint64_t{(m - 1) / rows + 1} * ((n - 1) / tokens + 1);
}

// Visits the tiles of `rows` x `tokens` outputs of an m by n product: tile(row, token). Blocks that run together have
// neighbouring tokens of few rows, so that they find each other's weights in the L2. The grid may have any size in x.
template <unsigned rows, unsigned tokens, class Tile>
ZINC_DEVICE void for_tiles(uint32_t m, uint32_t n, Tile tile) {
  const uint32_t columns = (n - 1) / tokens + 1;
  const uint64_t tiles = tile_count<rows, tokens>(m, n);
  for (uint64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    tile(static_cast<uint32_t>(i / columns) * rows, static_cast<uint32_t>(i % columns) * tokens);
  }
}

// The first row and token of the block's tile of m by n outputs, in the same order, where the grid has a block for
// every tile. Blocks beyond them are past the last row.
struct TilePlace {
  uint64_t row;
  uint32_t token;
};
template <unsigned rows, unsigned tokens>
ZINC_DEVICE TilePlace tile_place(uint32_t n) {
  const uint32_t columns = (n - 1) / tokens + 1;
  return {uint64_t{blockIdx.x / columns} * rows, blockIdx.x % columns * tokens};
}

}  // namespace zinc
