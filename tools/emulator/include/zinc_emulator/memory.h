// Loads and stores with a cache hint (plain here), and copies that complete only when they are waited for.
#pragma once

#define ZINC_EMULATOR_LOAD(name)      \
  template <class T>                  \
  inline T name(const T* address) {   \
    return *address;                  \
  }
#define ZINC_EMULATOR_STORE(name)                                                             \
  template <class T>                                                                          \
  inline void name(T* address, typename zinc_emulator::identity<T>::type value) {             \
    *address = value;                                                                         \
  }

ZINC_EMULATOR_LOAD(__ldg)
ZINC_EMULATOR_LOAD(__ldca)
ZINC_EMULATOR_LOAD(__ldcg)
ZINC_EMULATOR_LOAD(__ldcs)
ZINC_EMULATOR_LOAD(__ldcv)
ZINC_EMULATOR_LOAD(__ldlu)
ZINC_EMULATOR_STORE(__stcg)
ZINC_EMULATOR_STORE(__stcs)
ZINC_EMULATOR_STORE(__stwb)
ZINC_EMULATOR_STORE(__stwt)
#undef ZINC_EMULATOR_LOAD
#undef ZINC_EMULATOR_STORE

namespace zinc_emulator {

struct AsyncCopy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint32_t zeros;  // bytes after them that are set to zero
  uint64_t group;
};

// A thread's copies that it has not waited for, oldest first.
struct AsyncCopies {
  AsyncCopy* items;
  size_t count;
  size_t capacity;
  uint64_t committed;  // groups so far
};

inline void complete(const AsyncCopy& copy) {
  memcpy(copy.to, copy.from, copy.bytes);
  memset(static_cast<unsigned char*>(copy.to) + copy.bytes, 0, copy.zeros);
}

// The meaning of cp.async: copies `bytes` of global memory to shared memory and sets `zeros` more bytes to zero, not
// before the thread waits for the copy's group. What is read too early is what was there before.
inline void copy_async(void* to, const void* from, uint32_t bytes, uint32_t zeros = 0) {
  // Sanitizers look at the memory when the copy starts, too.
  if (bytes != 0) static_cast<void>(*static_cast<const volatile unsigned char*>(from));
  AsyncCopies*& copies = zinc_emulator_current->copies;
  if (copies == nullptr) copies = static_cast<AsyncCopies*>(calloc(1, sizeof(AsyncCopies)));
  if (copies->count == copies->capacity) {
    copies->capacity = copies->capacity * 2 + 16;
    copies->items = static_cast<AsyncCopy*>(realloc(copies->items, copies->capacity * sizeof(AsyncCopy)));
  }
  copies->items[copies->count++] = {to, from, bytes, zeros, copies->committed};
}

// The meaning of cp.async.commit_group: the copies since the last commit are one group.
inline void copy_async_commit() {
  AsyncCopies*& copies = zinc_emulator_current->copies;
  if (copies == nullptr) copies = static_cast<AsyncCopies*>(calloc(1, sizeof(AsyncCopies)));
  copies->committed += 1;
}

// The meaning of cp.async.wait_group: completes all but the `newest` last groups.
inline void copy_async_wait(uint64_t newest) {
  AsyncCopies* const copies = zinc_emulator_current->copies;
  if (copies == nullptr) return;
  size_t done = 0;
  while (done < copies->count && copies->items[done].group + newest < copies->committed) {
    complete(copies->items[done++]);
  }
  copies->count -= done;
  if (done != 0) memmove(copies->items, copies->items + done, copies->count * sizeof(AsyncCopy));
}

// The meaning of cp.async.wait_all: also the copies that no group has yet.
inline void copy_async_wait_all() {
  copy_async_commit();
  copy_async_wait(0);
}

}  // namespace zinc_emulator
