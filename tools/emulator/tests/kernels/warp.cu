// Warp operations and barriers with a result, one value per thread for the tests to compare.
#include "zinc/platform.cuh"

struct shuffle_push {
  uint32_t operation;
  int32_t argument;
  int32_t width;
};

template <class T>
ZINC_DEVICE T shuffle(shuffle_push p, T value) {
  switch (p.operation) {
    case 0:
      return __shfl_sync(0xffffffffu, value, p.argument, p.width);
    case 1:
      return __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(p.argument), p.width);
    case 2:
      return __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(p.argument), p.width);
    default:
      return __shfl_xor_sync(0xffffffffu, value, p.argument, p.width);
  }
}

// Lane numbers, shuffled as u32, f32, u64 and f64.
ZINC_KERNEL void test_shuffle(uint4* out, shuffle_push p) {
  const unsigned t = threadIdx.x;
  const uint64_t wide = shuffle(p, uint64_t{t} << 32 | t);
  out[t] = make_uint4(shuffle(p, t), static_cast<unsigned>(shuffle(p, static_cast<float>(t))),
                      static_cast<unsigned>(wide >> 32), static_cast<unsigned>(shuffle(p, static_cast<double>(t))));
}
ZINC_EMULATOR_ENTRY(test_shuffle)

struct vote_push {
  uint32_t mask;
};

// The threads that the mask names (of one warp, or of a part of one) vote about their input.
ZINC_KERNEL void test_votes(const int* in, uint32_t* out, vote_push p) {
  const unsigned t = threadIdx.x;
  if ((p.mask >> t & 1u) == 0) return;
  const int value = in[t];
  int all = 0;
  unsigned* const mine = out + 16 * t;
  mine[0] = __ballot_sync(p.mask, value > 0);
  mine[1] = static_cast<unsigned>(__any_sync(p.mask, value > 0));
  mine[2] = static_cast<unsigned>(__all_sync(p.mask, value > 0));
  mine[3] = __match_any_sync(p.mask, value);
  mine[4] = __match_all_sync(p.mask, value, &all);
  mine[5] = static_cast<unsigned>(all);
  mine[6] = static_cast<unsigned>(__reduce_add_sync(p.mask, value));
  mine[7] = static_cast<unsigned>(__reduce_min_sync(p.mask, value));
  mine[8] = static_cast<unsigned>(__reduce_max_sync(p.mask, value));
  mine[9] = __reduce_min_sync(p.mask, static_cast<unsigned>(value));
  mine[10] = __reduce_max_sync(p.mask, static_cast<unsigned>(value));
  mine[11] = __reduce_and_sync(p.mask, static_cast<unsigned>(value));
  mine[12] = __reduce_or_sync(p.mask, static_cast<unsigned>(value));
  mine[13] = __reduce_xor_sync(p.mask, static_cast<unsigned>(value));
  __syncwarp(p.mask);
  mine[14] = 1;
}
ZINC_EMULATOR_ENTRY(test_votes)

// Both halves of a warp take different ways with masks of their own, then meet.
ZINC_KERNEL void test_halves(uint32_t* out, vote_push) {
  const unsigned t = threadIdx.x;
  unsigned seen;
  if (t < 16) {
    seen = __ballot_sync(0x0000ffffu, t % 2);
  } else {
    __syncwarp(0xffff0000u);
    seen = __ballot_sync(0xffff0000u, t % 3 == 0);
  }
  out[t] = seen ^ __ballot_sync(0xffffffffu, 1);
}
ZINC_EMULATOR_ENTRY(test_halves)

// Barriers that count; the predicate is true in the threads below the limit.
ZINC_KERNEL void test_counting_barriers(uint32_t* out, vote_push p) {
  const bool below = threadIdx.x < p.mask;
  uint32_t* const mine = out + 3 * threadIdx.x;
  mine[0] = static_cast<unsigned>(__syncthreads_count(below));
  mine[1] = static_cast<unsigned>(__syncthreads_or(below));
  mine[2] = static_cast<unsigned>(__syncthreads_and(below));
}
ZINC_EMULATOR_ENTRY(test_counting_barriers)

// A collective of one's own, as wrappers of matrix instructions use it: each lane gets the sum of all lower lanes.
struct prefix_args {
  uint32_t value;
};
inline void run_prefix(zinc_emulator::Lanes& lanes) {
  uint32_t sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!lanes.has(lane)) continue;
    prefix_args& args = *static_cast<prefix_args*>(lanes.args[lane]);
    const uint32_t value = args.value;
    args.value = sum;
    sum += value;
  }
}
static constexpr zinc_emulator::Collective prefix = {"prefix", run_prefix};
ZINC_KERNEL void test_collective(uint32_t* out, vote_push) {
  prefix_args args = {threadIdx.x};
  zinc_emulator::warp_collective(prefix, 0xffffffffu, args, __FILE__, __LINE__);
  out[threadIdx.x] = args.value;
}
ZINC_EMULATOR_ENTRY(test_collective)
