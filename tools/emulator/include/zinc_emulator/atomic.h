// Atomic read-modify-write operations, relaxed as in CUDA, and the fences. Blocks run in parallel, so they are real
// atomics of the host.
#pragma once

namespace zinc_emulator {

// Replaces *address by f(*address), comparing bit patterns; the old value.
template <class Bits, class T, class F>
inline T atomic_update(T* address, F f) {
  static_assert(sizeof(Bits) == sizeof(T), "the bit pattern of T");
  Bits* const word = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T value;
    memcpy(&value, &before, sizeof value);
    const T next = f(value);
    Bits after;
    memcpy(&after, &next, sizeof after);
    if (__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return value;
  }
}

}  // namespace zinc_emulator

#define ZINC_EMULATOR_ATOMIC_INTEGER(T, Bits)                                                                       \
  inline T atomicAdd(T* address, T value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }          \
  inline T atomicExch(T* address, T value) { return __atomic_exchange_n(address, value, __ATOMIC_RELAXED); }        \
  inline T atomicAnd(T* address, T value) { return __atomic_fetch_and(address, value, __ATOMIC_RELAXED); }          \
  inline T atomicOr(T* address, T value) { return __atomic_fetch_or(address, value, __ATOMIC_RELAXED); }            \
  inline T atomicXor(T* address, T value) { return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED); }          \
  inline T atomicMin(T* address, T value) {                                                                         \
    return zinc_emulator::atomic_update<Bits>(address, [=](T old) { return value < old ? value : old; });           \
  }                                                                                                                 \
  inline T atomicMax(T* address, T value) {                                                                         \
    return zinc_emulator::atomic_update<Bits>(address, [=](T old) { return old < value ? value : old; });           \
  }                                                                                                                 \
  inline T atomicCAS(T* address, T expected, T value) {                                                             \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
    return expected;                                                                                                \
  }

ZINC_EMULATOR_ATOMIC_INTEGER(int, uint32_t)
ZINC_EMULATOR_ATOMIC_INTEGER(unsigned, uint32_t)
ZINC_EMULATOR_ATOMIC_INTEGER(long long, uint64_t)
ZINC_EMULATOR_ATOMIC_INTEGER(unsigned long long, uint64_t)
#undef ZINC_EMULATOR_ATOMIC_INTEGER

inline int atomicSub(int* address, int value) { return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED); }
inline unsigned atomicSub(unsigned* address, unsigned value) {
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
inline float atomicAdd(float* address, float value) {
  return zinc_emulator::atomic_update<uint32_t>(address, [=](float old) { return old + value; });
}
inline double atomicAdd(double* address, double value) {
  return zinc_emulator::atomic_update<uint64_t>(address, [=](double old) { return old + value; });
}
inline float atomicExch(float* address, float value) {
  return zinc_emulator::atomic_update<uint32_t>(address, [=](float) { return value; });
}
inline unsigned short atomicCAS(unsigned short* address, unsigned short expected, unsigned short value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
// Counts up to `limit`, then starts again at 0.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return zinc_emulator::atomic_update<uint32_t>(address, [=](unsigned old) { return old >= limit ? 0u : old + 1; });
}
// Counts down to 0, then starts again at `limit`.
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return zinc_emulator::atomic_update<uint32_t>(
      address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
