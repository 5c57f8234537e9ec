// What the scheduler needs from the C++ side: the current thread, the pending copies of a thread that ends, and the
// address sanitizer's view of memory.
#include "zinc_emulator.h"

#ifdef ZINC_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#endif

extern "C" {

__thread zinc_emulator::Thread* zinc_emulator_current = nullptr;

// Where this OS thread keeps its current thread: the same address for its whole life.
zinc_emulator::Thread** zinc_emulator_current_slot() { return &zinc_emulator_current; }

// The sizes that src/abi.rs must agree with.
uint64_t zinc_emulator_layout(uint32_t which) {
  switch (which) {
    case 0: return sizeof(zinc_emulator::Thread);
    case 1: return sizeof(zinc_emulator::Block);
    case 2: return sizeof(zinc_emulator::Lanes);
    case 3: return sizeof(zinc_emulator::SharedKey);
    case 4: return sizeof(zinc_emulator::Entry);
    case 5: return offsetof(zinc_emulator::Thread, slot);
    case 6: return offsetof(zinc_emulator::Block, shared);
    case 7: return sizeof(zinc_emulator::Phase);
    case 8: return offsetof(zinc_emulator::Phase, parity);
    default: return 0;
  }
}

// A thread that ends completes its copies (`finish`); one that is abandoned only gives their memory back.
void zinc_emulator_end_copies(zinc_emulator::AsyncCopies* copies, bool finish) {
  for (size_t i = 0; finish && i < copies->count; ++i) zinc_emulator::complete(copies->items[i]);
  free(copies->items);
  free(copies);
}

// Forbids or allows access to memory where the address sanitizer is compiled in.
void zinc_emulator_set_accessible([[maybe_unused]] void* start, [[maybe_unused]] uint64_t bytes,
                                  [[maybe_unused]] bool accessible) {
#ifdef ZINC_EMULATOR_ASAN
  if (accessible) {
    __asan_unpoison_memory_region(start, bytes);
  } else {
    __asan_poison_memory_region(start, bytes);
  }
#endif
}
}
