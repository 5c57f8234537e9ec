// Halves of a block that take turns: what one does in its turn falls together with what the other one does outside.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

template <unsigned threads>
ZINC_DEVICE unsigned block_half() {
  return threadIdx.x / (threads / 2);
}

// A barrier of each half of a block of `threads` threads. `alternates`: the halves pass it in turn, the first one
// first, each when the other one calls pass_turn. Before its first turn the second half passes one; it does not pass
// its last one. Both halves take equally many turns.
template <unsigned threads, bool alternates>
ZINC_DEVICE void take_turn() {
#ifdef ZINC_EMULATOR
  __syncthreads();
#else
  constexpr unsigned all = alternates ? threads : threads / 2;
  asm volatile("bar.sync %0, %1;" ::"r"(block_half<threads>() + 1), "n"(all) : "memory");
#endif
}

template <unsigned threads>
ZINC_DEVICE void pass_turn() {
#ifndef ZINC_EMULATOR
  asm volatile("bar.arrive %0, %1;" ::"r"(2 - block_half<threads>()), "n"(threads) : "memory");
#endif
}

}  // namespace zinc
