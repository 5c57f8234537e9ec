// CUDA for the host compiler: the built-ins that kernels-cu uses, with the meaning they have on a GPU. A kernel
// compiled against this header is run by the scheduler of this crate, every CUDA thread as a coroutine of one OS thread.
//
// What differs from a GPU, on purpose:
// - __shared__ does not exist: shared memory is declared with ZINC_SHARED and ZINC_DYNAMIC_SHARED only;
// - __activemask() does not compile: its value depends on the scheduler, also on hardware;
// - the approximate intrinsics (__expf, __fdividef, rsqrtf, ...) are accurate;
// - undefined values (a shuffle from a lane that is not in the mask) are the poison byte of the run;
// - blocks run in any order and some of them after others have ended: a block that spins until another one writes
//   global memory may never end;
// - nothing may throw; __trap() and a failed assert() end the dispatch with an error.
#pragma once

#ifndef ZINC_EMULATOR
#error "zinc_emulator.h is for host compilation with ZINC_EMULATOR defined"
#endif

// All the standard headers that kernels may need come first, before the CUDA names are defined. Of libstdc++'s only
// C's own part: the overloads and templates that it adds would be three quarters of all the text of a unit.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#define ZINC_ARCH 0

#include "zinc_emulator/vector.h"

#include "zinc_emulator/thread.h"

#include "zinc_emulator/atomic.h"
#include "zinc_emulator/convert.h"
#include "zinc_emulator/integer.h"
#include "zinc_emulator/math.h"
#include "zinc_emulator/memory.h"
#include "zinc_emulator/phase.h"
#include "zinc_emulator/warp.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __shared__ static_assert(false, "declare shared memory with ZINC_SHARED or ZINC_DYNAMIC_SHARED");
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif

#define ZINC_KERNEL static
#define ZINC_DEVICE __forceinline__
