// Rows of small matrices in shared memory, copied whole: asked for at once, and where they may be read early before the
// kernel before this one has ended. From compute capability 9.0 on.
//
// A block has some tiles of rows, a grid apart; each of its warps takes 256 of 2048 columns of all of them. What is
// copied is a struct `Copied` with
//   step_bytes, row_columns          rows are multiples of row_columns columns, which are multiples of 16 bytes
//   pitch                            between rows in shared memory
//   tile_rows
//   room, room_of_two                how many tiles of up to 2048 columns have room there, or halves of longer ones:
//                                    all or nearly all that a block needs, and another kernel's block finds room beside
//                                    it
//   ahead, ahead_of_two              how many of these are asked for at first. The vector would wait behind what is on
//                                    its way when the kernel before this one ends: the rest is asked for after it.
#pragma once

#include "zinc/dmmv_few.cuh"
#include "zinc/dmmv_planes.cuh"
#include "zinc/early.cuh"
#include "zinc/phase_barrier.cuh"

namespace zinc {

constexpr unsigned copied_warps = 8;
constexpr unsigned copied_rows = 64;  // of a block, at most, where not said otherwise

// Whether a matrix that is neither tiny nor more than `few` weights, and lies at `offset`, is multiplied this way.
// Launch files say the same.
template <class Copied>
ZINC_DEVICE bool is_copied(uint32_t m, uint32_t k, uint32_t offset, uint32_t columns, uint32_t tiny, uint32_t few) {
  static_assert(Copied::row_columns / step_columns * Copied::step_bytes % 16 == 0);
  const uint64_t weights = uint64_t{m} * k;
  return k % Copied::row_columns == 0 && offset % 16 == 0 && k <= columns && weights > tiny && weights <= few;
}

// The same for `sets` matrices of which a row group has `columns` columns, all warps of a block and at most `most`.
// Their rows or vectors are `misfit` bytes from where copies and wide loads need them.
template <class Copied>
ZINC_DEVICE bool is_copied_set(uint32_t sets, uint32_t m, uint32_t k, uint32_t columns, uint32_t misfit, uint32_t most,
                               uint32_t few) {
  return misfit == 0 && columns >= copied_warps * step_columns && columns <= most && k % Copied::row_columns == 0 &&
         uint64_t{sets} * m * k <= few;
}

// Which of the blocks of a matrix this one is.
struct BlockOfMany {
  uint32_t block = blockIdx.x;
  uint32_t blocks = gridDim.x;
};

// A bool that is known when the kernel is compiled.
template <bool value>
struct Known {
  ZINC_DEVICE constexpr operator bool() const { return value; }
};

// How a block goes through its rows: tiles of some rows of each matrix, each in one or two chunks of columns. Terms are
// what is multiplied; see dmmv_few.cuh. Two is bool or Known.
template <class Copied, class Terms, class Two = bool, unsigned most_rows = copied_rows>
struct CopiedWork {
  static constexpr unsigned chunk_columns = copied_warps * step_columns;
  static constexpr unsigned pitch = Copied::pitch;
  static constexpr unsigned tile_rows = Copied::tile_rows;
  static constexpr unsigned matrices = Terms::matrices;
  static constexpr unsigned most_tiles = matrices * (most_rows / tile_rows);
  static constexpr unsigned most_chunks = 2;  // of a tile
  static constexpr unsigned barrier_bytes = 64;
  static_assert(pitch >= copied_warps * Copied::step_bytes && pitch % 16 == 0);
  static_assert(Copied::room >= Copied::room_of_two && Copied::room * sizeof(PhaseBarrier) <= barrier_bytes);
  static_assert(Copied::room_of_two % most_chunks == 0, "a barrier is for chunks of the same columns");

  const Terms& terms;
  uint32_t m;
  uint32_t columns;
  PhaseBarrier* come;
  uint8_t* rows;
  BlockOfMany share;
  Two two;                                 // chunks
  typename Terms::Part part[most_chunks];  // of a chunk, that the lane asks for
  uint32_t row_tiles = 0;

  // With barrier_bytes bytes from `memory` on, and those of the rows behind them. All threads of the block call it.
  ZINC_DEVICE CopiedWork(const Terms& terms, uint32_t m, uint8_t* memory, Two two, const BlockOfMany& share = {})
      : terms(terms),
        m(m),
        columns(terms.columns()),
        come(reinterpret_cast<PhaseBarrier*>(memory)),
        rows(memory + barrier_bytes),
        share(share),
        two(two),
        part{own_part(0), own_part(1)} {
#pragma unroll
    for (unsigned i = 0; i < most_tiles / matrices; ++i) row_tiles += first_row(matrices * i) < m ? 1 : 0;
    if (threadIdx.x < Copied::room) {
      const uint32_t own = chunk(threadIdx.x);
      phase_make(come[threadIdx.x], tile_rows * terms.parts(chunk_from(own), chunk_to(own)));
    }
    __syncthreads();
  }
  // Asks for what is asked for at first. All threads of the block call this and what follows.
  ZINC_DEVICE void begin() const {
#pragma unroll 1
    for (unsigned number = 0; number < ahead(); ++number) ask(number);
  }
  // Asks for the rest of what finds room.
  ZINC_DEVICE void ask_rest() const {
#pragma unroll 1
    for (unsigned number = ahead(); number < room(); ++number) ask(number);
  }

  ZINC_DEVICE uint32_t first_row(uint32_t tile) const {
    return (share.block + tile / matrices * share.blocks) * tile_rows;
  }
  ZINC_DEVICE uint32_t tiles() const { return matrices * row_tiles; }
  ZINC_DEVICE uint32_t count() const { return two ? 2 * tiles() : tiles(); }
  ZINC_DEVICE uint32_t tile(uint32_t number) const { return two ? number / 2 : number; }
  ZINC_DEVICE uint32_t chunk(uint32_t number) const { return two ? number % 2 : 0; }
  ZINC_DEVICE uint32_t chunk_from(uint32_t chunk) const { return chunk * chunk_columns; }
  ZINC_DEVICE uint32_t chunk_to(uint32_t chunk) const { return min((chunk + 1) * chunk_columns, columns); }
  ZINC_DEVICE typename Terms::Part own_part(uint32_t chunk) const {
    return terms.part(chunk_from(chunk), chunk_to(chunk));
  }
  ZINC_DEVICE uint32_t room() const { return two ? Copied::room_of_two : Copied::room; }
  ZINC_DEVICE uint32_t ahead() const {
    // Never all, if there may be several.
    constexpr unsigned most = most_tiles > 1 ? most_tiles - 1 : 1;
    return two ? Copied::ahead_of_two : Copied::ahead < most ? Copied::ahead : most;
  }
  // Whether all that a block may have finds room at once.
  ZINC_DEVICE bool all_room() const { return two ? 2 * most_tiles <= Copied::room_of_two : most_tiles <= Copied::room; }
  ZINC_DEVICE uint32_t slot(uint32_t number) const {
    if (all_room()) return number;
    return two ? number % Copied::room_of_two : number % Copied::room;
  }
  // Where the chunk's rows lie.
  ZINC_DEVICE uint32_t place(uint32_t number) const { return slot(number) * (tile_rows * pitch); }
  static ZINC_DEVICE uint32_t bytes(uint32_t columns) { return columns / step_columns * Copied::step_bytes; }
  // By all warps of the block. A lane asks for a part of the columns.
  ZINC_DEVICE void ask(uint32_t number) const {
    const bool second = chunk(number) != 0;
    const typename Terms::Part own = second ? part[1] : part[0];
    if (number >= count() || !own.exists()) return;
    const uint32_t from = chunk_from(chunk(number));
    const uint32_t begin = own.begin(from);
    const uint32_t size = bytes(own.end(chunk_to(chunk(number))) - begin);
    const uint8_t* const matrix = own.matrix(terms, tile(number) % matrices) + bytes(own.place(from));
    const uint32_t row_size = bytes(terms.k);
    const uint32_t first = first_row(tile(number));
    uint8_t* const to = rows + place(number) + bytes(begin - from);
#pragma unroll 2
    for (uint32_t r = warp_id(); r < tile_rows; r += block_warps()) {
      phase_arrive_with_copy(come[slot(number)], to + r * pitch, matrix + uint64_t{min(first + r, m - 1)} * row_size,
                             size);
    }
  }
  ZINC_DEVICE void wait(uint32_t number) const {
    phase_wait(come[slot(number)], all_room() ? 0 : (two ? number / Copied::room_of_two : number / Copied::room) % 2);
  }
  // Frees the room of a chunk that all warps have taken, where that is needed.
  ZINC_DEVICE void free(uint32_t number) const {
    if (all_room() || number + room() >= count()) return;
    __syncthreads();
    ask(number + room());
  }
  // Whether a chunk's columns are the last ones of its tile.
  ZINC_DEVICE bool ends(uint32_t number) const { return !two || number % 2 != 0; }
};

}  // namespace zinc
