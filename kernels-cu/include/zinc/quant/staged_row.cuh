// What a lane reads of a row whose blocks have any alignment, from its copy in shared memory.
#pragma once

#include "zinc/half.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// Bytes that begin `shift` bytes after `words`, which is 4-byte aligned.
struct StagedRow {
  SharedAddress words;
  unsigned shift;

  // `misalignment` is how far the row's step lies from where the aligned bytes around it were copied to.
  ZINC_DEVICE StagedRow(SharedAddress copied, unsigned misalignment)
      : words(copied + (misalignment & ~3u)), shift(misalignment & 3u) {}

  ZINC_DEVICE StagedRow from(unsigned at) const { return StagedRow(words, at + shift); }

  // Words from byte `at` on, a multiple of 4. The aligned words around them are read.
  ZINC_DEVICE void load2(unsigned at, uint32_t& first, uint32_t& second) const {
    const uint32_t words3[3] = {(words + at).load(), (words + (at + 4)).load(), (words + (at + 8)).load()};
    first = __byte_perm(words3[0], words3[1], selector());
    second = __byte_perm(words3[1], words3[2], selector());
  }
  ZINC_DEVICE void load4(unsigned at, uint32_t (&to)[4]) const {
    uint32_t lower = (words + at).load();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t upper = (words + (at + 4 * i + 4)).load();
      to[i] = __byte_perm(lower, upper, selector());
      lower = upper;
    }
  }
  ZINC_DEVICE float load_half(unsigned at) const { return half_to_float((words + (at + shift)).load_half()); }

 private:
  ZINC_DEVICE uint32_t selector() const { return 0x3210u + 0x1111u * shift; }
};

}  // namespace zinc
