// What a lane reads of a row whose blocks have any alignment, from its copy in shared memory.
#pragma once

#include "zinc/half.cuh"
#include "zinc/quant/words.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// f(constant<0>), ..., f(constant<count - 1>).
template <unsigned value>
struct constant {
  static constexpr unsigned index = value;
};
template <unsigned count, class F>
ZINC_DEVICE void for_constants(F f) {
  if constexpr (count > 0) {
    for_constants<count - 1>(f);
    f(constant<count - 1>{});
  }
}

// Bytes that begin `shift` bytes after `words`, which is 4-byte aligned; `aligned` where that is known to be 0. Offsets
// are given as a constant and a multiple of 4 that depends on the lane.
template <bool aligned>
struct StagedRow {
  SharedAddress words;
  unsigned shift;

  // `misalignment` is how far the row's step lies from where the aligned bytes around it were copied to.
  ZINC_DEVICE StagedRow(SharedAddress copied, unsigned misalignment)
      : words(copied + (misalignment & ~3u)), shift(aligned ? 0 : misalignment & 3u) {}

  // Words from any byte on. The aligned words around them are read.
  template <unsigned at, unsigned count>
  ZINC_DEVICE void load(unsigned lane_at, uint32_t (&to)[count]) const {
    const unsigned odd = at % 4 + shift;
    const SharedAddress first = words + (at / 4 * 4 + lane_at + (odd & ~3u));
    uint32_t lower = first.load();
    if constexpr (aligned && at % 4 == 0) {
      to[0] = lower;
#pragma unroll
      for (unsigned i = 1; i < count; ++i) to[i] = (first + 4 * i).load();
    } else {
      const uint32_t selector = 0x3210u + 0x1111u * (odd & 3u);
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        const uint32_t upper = (first + (4 * i + 4)).load();
        to[i] = permute_bytes(lower, upper, selector);
        lower = upper;
      }
    }
  }
  // The same where the row is 4-byte aligned.
  template <unsigned at, unsigned count>
  ZINC_DEVICE void load_aligned(unsigned lane_at, uint32_t (&to)[count]) const {
    static_assert(at % 4 == 0);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) to[i] = (words + (at + 4 * i + lane_at)).load();
  }
  template <unsigned at>
  ZINC_DEVICE uint32_t load_byte(unsigned lane_at) const {
    return (words + (at + lane_at + shift)).load_byte();
  }
  template <unsigned at>
  ZINC_DEVICE float load_half(unsigned lane_at) const {
    return half_to_float((words + (at + lane_at + shift)).load_half());
  }
};

}  // namespace zinc
