// Reads of the buffers named in `early` of the launch file, before the kernel before this one has ended.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// Whether the launch says that the kernel before this one writes none of these buffers: it then asks for 8 bytes of
// dynamic shared memory more than the launch file, which has a multiple of 16.
ZINC_DEVICE bool may_read_early() {
#ifdef ZINC_EMULATOR
  return zinc_emulator::may_read_early();
#elif ZINC_ARCH >= 90
  uint32_t bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes % 16 != 0;
#else
  return false;
#endif
}

// Where a kernel waits for the one before it: here, or at the end of what it reads early if it may. All threads make
// one and end it, in place of wait_for_previous().
class EarlyReads {
  bool allowed_ = may_read_early();

 public:
  static constexpr bool any = true;

  ZINC_DEVICE EarlyReads() {
    if (!allowed_) wait_for_previous();
  }
  ZINC_DEVICE void end() const {
    if (allowed_) wait_for_previous();
  }
};

// The same for kernels that read nothing early.
class NothingEarly {
 public:
  static constexpr bool any = false;

  ZINC_DEVICE NothingEarly() { wait_for_previous(); }
  ZINC_DEVICE void end() const {}
};

// Keeps loads of a struct of words where they are written: before the end of early reads. Where the assembler puts them
// off all the same, `never` helps: it is false, which nobody knows. Where it does not, that makes it wait for them.
template <bool put_off, class Words>
ZINC_DEVICE void keep_early([[maybe_unused]] const Words& loaded, [[maybe_unused]] bool never) {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  uint32_t words[sizeof(Words) / sizeof(uint32_t)];
  memcpy(words, &loaded, sizeof(words));
  uint32_t all = 0;
#pragma unroll
  for (const uint32_t word : words) {
    all ^= word;
    if constexpr (!put_off) asm volatile("" ::"r"(word));
  }
  if (put_off && never) asm volatile("st.shared.u32 [%0], %0;" ::"r"(all));
#endif
}

}  // namespace zinc
