// Copies from global to shared memory that run beside the copying thread (cp.async, from compute capability 8.0 on;
// before, a load and a store).
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// A place in shared memory as the copies take it. Offsets in bytes may be added to it.
#ifdef ZINC_EMULATOR
using SharedPlace = unsigned char*;
#else
using SharedPlace = uint32_t;
#endif

ZINC_DEVICE SharedPlace shared_place(void* shared) {
#ifdef ZINC_EMULATOR
  return static_cast<unsigned char*>(shared);
#else
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#endif
}

// Asks for `bytes` bytes of global memory, which need not be the latest, so that they are in the L2 cache when they are
// read. Both are multiples of 16. From compute capability 9.0 on, else without effect.
ZINC_DEVICE void prefetch_l2([[maybe_unused]] const uint8_t* global, [[maybe_unused]] uint32_t bytes) {
#if ZINC_ARCH >= 90
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#endif
}

// Starts a copy of 4, 8 or 16 bytes, both addresses multiples of that. The thread that started it sees the bytes after
// it has waited for the copy's group, other threads after a barrier that follows.
template <unsigned bytes>
ZINC_DEVICE void async_copy(SharedPlace to, const void* global) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "the sizes of cp.async");
#ifdef ZINC_EMULATOR
  ::zinc_emulator::copy_async(to, global, bytes);
#elif ZINC_ARCH >= 80
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(bytes) : "memory");
  }
#else
  const uint32_t* const words = static_cast<const uint32_t*>(global);
  for (unsigned i = 0; i < bytes / 4; ++i) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(words[i]) : "memory");
  }
#endif
}

// Starts the same copy of 16 bytes of what is read once, whose neighbours are copied soon: these come to the second
// cache too. By way of the first cache only where `cached` says so: where others copy from the same 32 bytes at about
// the same time.
template <bool cached>
ZINC_DEVICE void async_copy_passing(SharedPlace to, const void* global) {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 80
  if constexpr (cached) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  }
#else
  async_copy<16>(to, global);
#endif
}

// Starts the same copy where `present`, and sets the bytes to zero otherwise; `global` must be readable all the same.
template <unsigned bytes>
ZINC_DEVICE void async_copy_or_zero(SharedPlace to, const void* global, bool present) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "the sizes of cp.async");
#ifdef ZINC_EMULATOR
  ::zinc_emulator::copy_async(to, global, present ? bytes : 0, present ? 0 : bytes);
#elif ZINC_ARCH >= 80
  const uint32_t taken = present ? bytes : 0;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(taken) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global), "r"(taken), "n"(bytes)
                 : "memory");
  }
#else
  const uint32_t* const words = static_cast<const uint32_t*>(global);
  for (unsigned i = 0; i < bytes / 4; ++i) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(present ? words[i] : 0u) : "memory");
  }
#endif
}

// Makes a group of the copies that the thread has started since the last commit.
ZINC_DEVICE void async_commit() {
#ifdef ZINC_EMULATOR
  ::zinc_emulator::copy_async_commit();
#elif ZINC_ARCH >= 80
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of the thread's groups but the `newest` last ones.
template <unsigned newest>
ZINC_DEVICE void async_wait() {
#ifdef ZINC_EMULATOR
  ::zinc_emulator::copy_async_wait(newest);
#elif ZINC_ARCH >= 80
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
#endif
}

}  // namespace zinc
