// What every kernel may assume of the machine below it: fixed-width integers, shared memory and the few
// built-ins that need a different spelling on a GPU and in the emulator. Kernels include this through their
// generated header and never include CUDA's own headers (they cost more compile time than the kernels do).
#pragma once

#ifdef ZINC_EMULATOR
#include "zinc_emulator.h"
#else

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long int;
using uint64_t = unsigned long int;

// The architecture that this translation unit is compiled for, as 10 * major + minor: 75, 80, ... 120.
#ifdef __CUDA_ARCH__
#define ZINC_ARCH (__CUDA_ARCH__ / 10)
#else
#define ZINC_ARCH 0
#endif

namespace zinc {
template <class T>
struct identity {
  using type = T;
};
}  // namespace zinc

// Statically sized shared memory: ZINC_SHARED(float[32], partial) declares an array that the block shares.
#define ZINC_SHARED(type_, name) __shared__ typename zinc::identity<type_>::type name

// Dynamically sized shared memory, `shared` bytes of the launch file, aligned to 16 bytes.
#define ZINC_DYNAMIC_SHARED(element, name)                             \
  extern __shared__ __align__(16) unsigned char zinc_dynamic_shared[]; \
  element* const name = reinterpret_cast<element*>(zinc_dynamic_shared)

#define ZINC_KERNEL extern "C" __global__
#define ZINC_DEVICE __device__ __forceinline__
#endif

namespace zinc {

// Waits until the kernel before this one on the stream has ended and its writes are visible; from then on the next one
// may be started, to wait in its turn. All threads call it, once, before they touch memory that other kernels write, or
// write any themselves. Without effect where the launch did not allow the overlap and before compute capability 9.0.
// The emulator runs one kernel at a time, and can check what a thread touches before. PTX ISA, "griddepcontrol".
ZINC_DEVICE void wait_for_previous() {
#ifdef ZINC_EMULATOR
  zinc_emulator::previous_ended();
#elif ZINC_ARCH >= 90
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace zinc
