// Barriers in shared memory between threads that fill a buffer and threads that empty it (mbarrier, from compute
// capability 9.0 on): nobody waits who only announces.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

// A phase ends when as many arrivals have been counted as the barrier was made for; the next one begins at once. Phases
// have the parities 0, 1, 0, ...
struct alignas(8) PhaseBarrier {
  uint64_t state;
};

// What follows does nothing before compute capability 9.0.
#ifdef ZINC_EMULATOR
#define ZINC_SITE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()
ZINC_DEVICE void phase_make(PhaseBarrier& barrier, uint32_t arrivals, ZINC_SITE) {
  ::zinc_emulator::phase_make(&barrier.state, arrivals, file, line);
}
ZINC_DEVICE void phase_end(PhaseBarrier&) {}
ZINC_DEVICE void phase_arrive(PhaseBarrier& barrier, ZINC_SITE) {
  ::zinc_emulator::phase_arrive(&barrier.state, file, line);
}
ZINC_DEVICE void phase_arrive_after_copies(PhaseBarrier& barrier, ZINC_SITE) {
  ::zinc_emulator::copy_async_wait_all();
  ::zinc_emulator::phase_arrive(&barrier.state, file, line);
}
ZINC_DEVICE void phase_wait(PhaseBarrier& barrier, uint32_t parity, ZINC_SITE) {
  ::zinc_emulator::phase_wait(&barrier.state, parity, file, line);
}
ZINC_DEVICE void phase_arrive_with_copy(PhaseBarrier& barrier, void* shared, const void* global, uint32_t bytes,
                                        ZINC_SITE) {
  ::zinc_emulator::copy_async(shared, global, bytes);
  ::zinc_emulator::copy_async_wait_all();
  ::zinc_emulator::phase_arrive(&barrier.state, file, line);
}
#undef ZINC_SITE
#else
ZINC_DEVICE uint32_t phase_place(PhaseBarrier& barrier) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
}

// Makes a barrier for `arrivals` arrivals a phase. One thread calls it; a barrier of the block follows before others
// use it.
ZINC_DEVICE void phase_make(PhaseBarrier& barrier, uint32_t arrivals) {
#if ZINC_ARCH >= 90
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(phase_place(barrier)), "r"(arrivals) : "memory");
#endif
}

// Ends a barrier that nobody uses any more, so that its place may hold other data. One thread calls it.
ZINC_DEVICE void phase_end(PhaseBarrier& barrier) {
#if ZINC_ARCH >= 90
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(phase_place(barrier)) : "memory");
#endif
}

// The thread has written what its phase is about: those who wait see it.
ZINC_DEVICE void phase_arrive(PhaseBarrier& barrier) {
#if ZINC_ARCH >= 90
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(phase_place(barrier))
               : "memory");
#endif
}

// Arrives when all copies that the thread has started (async_copy) are complete, without waiting for them.
ZINC_DEVICE void phase_arrive_after_copies(PhaseBarrier& barrier) {
#if ZINC_ARCH >= 90
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(phase_place(barrier)) : "memory");
#endif
}

// Starts a copy of `bytes` bytes to shared memory (cp.async.bulk), all of it multiples of 16, and arrives: the phase
// does not end before the bytes are there. Those who wait for it may give them to wgmma without a fence.
ZINC_DEVICE void phase_arrive_with_copy(PhaseBarrier& barrier, void* shared, const void* global, uint32_t bytes) {
#if ZINC_ARCH >= 90
  const uint32_t place = phase_place(barrier);
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(place),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(bytes), "r"(place)
               : "memory");
#endif
}

// Waits until the phase of the given parity has ended: returns at once where the barrier is in the other one.
ZINC_DEVICE void phase_wait(PhaseBarrier& barrier, uint32_t parity) {
#if ZINC_ARCH >= 90
  asm volatile(
      "{\n\t"
      ".reg .pred ended;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared.b64 ended, [%0], %1;\n\t"
      "@!ended bra again;\n\t"
      "}" ::"r"(phase_place(barrier)),
      "r"(parity)
      : "memory");
#endif
}
#endif

}  // namespace zinc
