// What matrix-matrix products by wgmma have in common: a warpgroup of a block brings rows and tokens to shared memory
// for the others, which multiply.
#pragma once

#include "zinc/phase_barrier.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// A ring of buffers in shared memory, filled by some threads and emptied by others, who count what they have filled or
// emptied.
template <unsigned count_>
struct Ring {
  static constexpr unsigned count = count_;
  static_assert((count & (count - 1)) == 0);
  PhaseBarrier full[count];
  PhaseBarrier empty[count];

  ZINC_DEVICE void make(uint32_t fillers, uint32_t emptiers) {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      phase_make(full[i], fillers);
      phase_make(empty[i], emptiers);
    }
  }
  ZINC_DEVICE void end() {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      phase_end(full[i]);
      phase_end(empty[i]);
    }
  }
  ZINC_DEVICE void wait_full(uint32_t number) { phase_wait(full[number % count], number / count % 2); }
  // Before the first round all are empty.
  ZINC_DEVICE void wait_empty(uint32_t number) { phase_wait(empty[number % count], number / count % 2 ^ 1); }
  // The thread has filled its part, or emptied it. Every thread that writes or reads arrives for itself: race checkers
  // do not see that one may arrive for a warp.
  ZINC_DEVICE void filled(uint32_t number) { phase_arrive(full[number % count]); }
  ZINC_DEVICE void emptied(uint32_t number) { phase_arrive(empty[number % count]); }
};

// The tile of a block, which is aligned to more than shared memory is.
template <class Tile, unsigned bytes>
ZINC_DEVICE Tile& aligned_tile(uint8_t* shared) {
  static_assert(sizeof(Tile) + alignof(Tile) - 16 <= bytes, "the tile is in shared memory");
  const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64_t>(shared) % alignof(Tile));
  return *reinterpret_cast<Tile*>(shared + (alignof(Tile) - past) % alignof(Tile));
}

}  // namespace zinc
