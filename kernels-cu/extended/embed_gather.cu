// Dequantises the rows of the embedding table that device-resident ids name. Grid: x over (id, tile of threads *
// per_thread elements); a thread owns per_thread elements of its block's tile, by spans of four where rows allow it.
//@ tile = { threads = 256, per_thread = 4 }
//@ block = ["threads"]
//@ grid = ["n_rows * ceil_div(cols, threads * per_thread)"]
//@ overlap = true
#include "zinc/embed_gather.h"

#include "zinc/elementwise.cuh"
#include "zinc/embedding.cuh"

ZINC_KERNEL void __launch_bounds__(embed_gather_tile::threads)
    embed_gather(const uint8_t* __restrict__ table, const uint32_t* __restrict__ ids, float* __restrict__ out,
                 embed_gather_push p) {
  zinc::wait_for_previous();
  using namespace embed_gather_tile;
  const zinc::RowTile at = zinc::row_tile<threads * per_thread>(p.cols);
  const uint32_t id = min(ids[uint64_t{p.index_offset} + at.row], p.vocab_last);
  const uint8_t* const row = table + uint64_t{id} * p.row_bytes;
  float* const to = out + p.out_offset + uint64_t{at.row} * p.cols;
  const uint32_t qtype = p.qtype;
  // Rows of a multiple of four columns begin at multiples of 4 columns in the table too.
  const bool aligned = zinc::all_aligned(to) && p.cols % zinc::wide == 0;
  zinc::map_tile<threads, per_thread>(at.tile, aligned, to, p.cols, [=](auto span) {
    return zinc::embedding_elements<span.width>(row, static_cast<uint32_t>(span.first), qtype);
  });
}
