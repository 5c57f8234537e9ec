// What a kernel and the scheduler know of each other: the running thread, its block, the requests that suspend it,
// and the entry through which the scheduler runs a kernel. src/abi.rs mirrors these layouts.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define ZINC_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZINC_EMULATOR_ASAN 1
#endif
#endif

namespace zinc_emulator {

constexpr unsigned warp_lanes = 32;

// A statically declared shared array; its address identifies the declaration.
struct SharedKey {
  const char* name;
  uint64_t bytes;
  uint64_t align;
};

// The arguments of a warp collective: one pointer per lane, null where the lane takes no part.
struct Lanes {
  void* args[warp_lanes];
  uint32_t present;
  uint32_t poison;

  bool has(unsigned lane) const { return (present >> lane & 1u) != 0; }
};

// An operation in which the lanes of a mask take part together. The scheduler calls `run` once, on its own stack,
// when all of them have arrived.
struct Collective {
  const char* name;
  void (*run)(Lanes& lanes);
};

enum class Wait : uint32_t { running = 0, warp = 1, block = 2, trap = 3, done = 4, phase = 5 };

struct Block;
struct AsyncCopies;

struct Thread {
  uint3 thread_idx;
  uint32_t lane;
  Block* block;
  // The request that suspended the thread.
  Wait wait;
  uint32_t mask;                 // warp: the lanes that take part
  const Collective* collective;  // warp: which operation
  void* args;                    // warp: the lane's arguments; phase: the barrier
  const char* what;              // the name of what it waits in, the text of a failure
  const char* file;
  uint32_t line;
  uint32_t value;  // block: the predicate, then the number of threads where it was not zero; phase: its parity
  // Asynchronous copies that have not been waited for, or null.
  AsyncCopies* copies;
  // The scheduler's own.
  void* yielder;
  uint64_t slot;
  uint64_t previous_ended;  // whether it has waited for the kernel before this one
};

struct Block {
  uint3 block_idx;
  uint3 block_dim;
  uint3 grid_dim;
  uint32_t poison;          // four poison bytes
  uint32_t may_read_early;  // whether the kernel before this one writes nothing that this one reads early
  unsigned char* dynamic_shared;
  void (*suspend)(Thread*);
  // The block's instance of a shared array.
  void* (*shared)(Block*, const SharedKey*);
  void (*previous_ended)(Thread*);
};

// A compiled kernel as the scheduler sees it.
struct Entry {
  void (*run)(void* const* buffers, const void* push);
  uint32_t buffers;
  uint32_t push_bytes;
};

}  // namespace zinc_emulator

// The thread that runs on this OS thread now. The scheduler sets it at every switch; __thread and not thread_local
// because it needs no initialisation check.
extern "C" __thread zinc_emulator::Thread* zinc_emulator_current
#ifdef __linux__
    __attribute__((tls_model("initial-exec")))
#endif
    ;

#define threadIdx (::zinc_emulator_current->thread_idx)
#define blockIdx (::zinc_emulator_current->block->block_idx)
#define blockDim (::zinc_emulator_current->block->block_dim)
#define gridDim (::zinc_emulator_current->block->grid_dim)
constexpr int warpSize = 32;

namespace zinc_emulator {

inline void suspend(Wait wait, const char* what, const char* file, unsigned line) {
  Thread* const thread = zinc_emulator_current;
  thread->wait = wait;
  thread->what = what;
  thread->file = file;
  thread->line = line;
  thread->block->suspend(thread);
}

// The meaning of griddepcontrol.wait: from here on the thread may touch what the kernel before this one touches.
inline void previous_ended() {
  Thread* const thread = zinc_emulator_current;
  thread->block->previous_ended(thread);
}

inline bool may_read_early() { return zinc_emulator_current->block->may_read_early != 0; }

// Ends the dispatch with an error that carries `text`.
[[noreturn]] inline void fail(const char* text, const char* file, unsigned line) {
  for (;;) suspend(Wait::trap, text, file, line);
}

// Waits for all threads of the block; the number of them with a predicate that is not zero.
inline unsigned block_barrier(const char* name, unsigned predicate, const char* file, unsigned line) {
  Thread* const thread = zinc_emulator_current;
  thread->value = predicate != 0;
  suspend(Wait::block, name, file, line);
  return thread->value;
}

// Waits for the lanes of `mask` at the same operation, which then sees the arguments of all of them and may write to
// them. `args` is a local variable of the caller; `operation` has static storage.
template <class Args>
inline void warp_collective(const Collective& operation, unsigned mask, Args& args, const char* file, unsigned line) {
  Thread* const thread = zinc_emulator_current;
  thread->collective = &operation;
  thread->mask = mask;
  thread->args = &args;
  suspend(Wait::warp, operation.name, file, line);
}

template <class T>
struct identity {
  using type = T;
};

template <class T>
inline T& shared_array(const SharedKey& key) {
  Block* const block = zinc_emulator_current->block;
  return *static_cast<T*>(block->shared(block, &key));
}

template <unsigned... index>
struct Indices {};
template <unsigned count, unsigned... index>
struct FirstIndices : FirstIndices<count - 1, count - 1, index...> {};
template <unsigned... index>
struct FirstIndices<0, index...> {
  using type = Indices<index...>;
};

// A kernel's parameter: pointers come from the bindings in order, anything else is the push struct.
template <class T>
struct Parameter {
  static constexpr unsigned pointers = 0;
  static constexpr uint32_t push_bytes = sizeof(T);
  static T take(void* const*, unsigned, const void* push) { return *static_cast<const T*>(push); }
};
template <class T>
struct Parameter<T*> {
  static constexpr unsigned pointers = 1;
  static constexpr uint32_t push_bytes = 0;
  static T* take(void* const* buffers, unsigned index, const void*) { return static_cast<T*>(buffers[index]); }
};

template <class... P, unsigned... index>
inline void call(void (*kernel)(P...), void* const* buffers, const void* push, Indices<index...>) {
  kernel(Parameter<P>::take(buffers, index, push)...);
}

template <class... P>
constexpr uint32_t buffer_count(void (*)(P...)) {
  return (0u + ... + Parameter<P>::pointers);
}
template <class... P>
constexpr uint32_t push_bytes(void (*)(P...)) {
  return (0u + ... + Parameter<P>::push_bytes);
}
template <class... P>
inline void call(void (*kernel)(P...), void* const* buffers, const void* push) {
  call(kernel, buffers, push, typename FirstIndices<sizeof...(P)>::type{});
}

}  // namespace zinc_emulator

// Makes `kernel`, defined before in this translation unit, known to the scheduler.
#define ZINC_EMULATOR_ENTRY(kernel)                                                                   \
  extern "C" const ::zinc_emulator::Entry* zinc_emulator_entry_##kernel() {                           \
    static const ::zinc_emulator::Entry entry = {                                                     \
        [](void* const* buffers, const void* push) { ::zinc_emulator::call(kernel, buffers, push); }, \
        ::zinc_emulator::buffer_count(kernel), ::zinc_emulator::push_bytes(kernel)};                  \
    return &entry;                                                                                    \
  }

#define ZINC_SHARED(type_, name)                                      \
  static const ::zinc_emulator::SharedKey name##_zinc_key = {         \
      #name, sizeof(typename ::zinc_emulator::identity<type_>::type), \
      alignof(typename ::zinc_emulator::identity<type_>::type)};      \
  typename ::zinc_emulator::identity<type_>::type& name =             \
      ::zinc_emulator::shared_array<typename ::zinc_emulator::identity<type_>::type>(name##_zinc_key)

#define ZINC_DYNAMIC_SHARED(element, name) \
  element* const name = reinterpret_cast<element*>(::zinc_emulator_current->block->dynamic_shared)

#undef assert
#define assert(condition) \
  ((condition) ? (void)0 : ::zinc_emulator::fail("assert(" #condition ") failed", __FILE__, __LINE__))
#define __trap() ::zinc_emulator::fail("__trap()", __FILE__, __LINE__)

#define __syncthreads() ((void)::zinc_emulator::block_barrier("__syncthreads", 0, __FILE__, __LINE__))
#define __syncthreads_count(predicate) \
  static_cast<int>(::zinc_emulator::block_barrier("__syncthreads_count", (predicate) != 0, __FILE__, __LINE__))
#define __syncthreads_or(predicate) \
  static_cast<int>(::zinc_emulator::block_barrier("__syncthreads_or", (predicate) != 0, __FILE__, __LINE__) != 0)
#define __syncthreads_and(predicate) \
  static_cast<int>(::zinc_emulator::block_barrier("__syncthreads_and", (predicate) == 0, __FILE__, __LINE__) == 0)
