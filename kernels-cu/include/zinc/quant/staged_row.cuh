// What a lane reads of a row whose blocks have any alignment, from its copy in shared memory.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/words.cuh"
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
  template <unsigned count>
  ZINC_DEVICE void load(unsigned at, uint32_t (&to)[count]) const {
    uint32_t lower = (words + at).load();
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const uint32_t upper = (words + (at + 4 * i + 4)).load();
      to[i] = permute_bytes(lower, upper, selector());
      lower = upper;
    }
  }
  // The same where the row is 4-byte aligned.
  template <unsigned count>
  ZINC_DEVICE void load_aligned(unsigned at, uint32_t (&to)[count]) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) to[i] = (words + (at + 4 * i)).load();
  }
  ZINC_DEVICE uint32_t load_byte(unsigned at) const { return (words + (at + shift)).load_byte(); }
  ZINC_DEVICE float load_half(unsigned at) const { return half_to_float((words + (at + shift)).load_half()); }

 private:
  ZINC_DEVICE uint32_t selector() const { return 0x3210u + 0x1111u * shift; }
};

}  // namespace zinc
