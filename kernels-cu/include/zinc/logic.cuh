// Logic instructions that the compiler would not choose.
#pragma once

#include "zinc/platform.cuh"

namespace zinc {

// (a & b) ^ c in one instruction, which it would not be for two constants.
ZINC_DEVICE uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c) {
#ifdef ZINC_EMULATOR
  return (a & b) ^ c;
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#endif
}

}  // namespace zinc
