// Dequantises the rows of the embedding table that device-resident ids name. Grid: x over (id, tile of threads *
// per_thread elements); a thread owns per_thread elements of its block's tile, by spans of four where rows allow it.
#include "zinc/embed_gather.h"

#include "zinc/elementwise.cuh"
#include "zinc/embedding.cuh"

namespace {

// The block's tile of a row of the table, to `to`.
template <zinc::Embedding format>
ZINC_DEVICE void gather(const uint8_t* __restrict__ row, float* __restrict__ to, uint32_t tile, uint32_t cols) {
  using namespace embed_gather_tile;
  const auto elements = [=](auto at) {
    return zinc::embedding_elements<format, at.width>(row, static_cast<uint32_t>(at.first));
  };
  // Rows of a multiple of four columns begin at multiples of 4 columns in the table too.
  if (zinc::all_aligned(to) && cols % zinc::wide == 0) {
    zinc::map_spans<threads, per_thread, zinc::wide>(tile, to, cols, elements);
    return;
  }
  // One at a time: many decodings at once would take too many registers.
#pragma unroll 1
  for (unsigned j = 0; j < per_thread; ++j) {
    const zinc::Span<1> at = {(uint64_t{tile} * per_thread + j) * threads + threadIdx.x};
    if (at.first < cols) at.to(to, elements(at));
  }
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(embed_gather_tile::threads)
    embed_gather(const uint8_t* __restrict__ table, const uint32_t* __restrict__ ids, float* __restrict__ out,
                 embed_gather_push p) {
  zinc::wait_for_previous();
  using zinc::Embedding;
  const zinc::RowTile at = zinc::row_tile<embed_gather_tile::threads * embed_gather_tile::per_thread>(p.cols);
  const uint32_t id = min(ids[uint64_t{p.index_offset} + at.row], p.vocab_last);
  const uint8_t* const row = table + uint64_t{id} * p.row_bytes;
  float* const to = out + p.out_offset + uint64_t{at.row} * p.cols;
  switch (static_cast<Embedding>(p.qtype)) {
    case Embedding::f32:
      return gather<Embedding::f32>(row, to, at.tile, p.cols);
    case Embedding::f16:
      return gather<Embedding::f16>(row, to, at.tile, p.cols);
    case Embedding::q8_0:
      return gather<Embedding::q8_0>(row, to, at.tile, p.cols);
    case Embedding::q4_k:
      return gather<Embedding::q4_k>(row, to, at.tile, p.cols);
    default:
      return gather<Embedding::q6_k>(row, to, at.tile, p.cols);
  }
}
