// Index of the largest logit, in two calls. Phase 0: `workgroups` blocks in x, block w reduces the groups of four
// logits w * threads + t, then steps of threads * workgroups, to the pair (value, index) w. Phase 1: one block reduces
// the n pairs to the token. Equal values go to the lowest index in both phases.
#include "zinc/argmax.h"

#include "zinc/span.cuh"
#include "zinc/warp.cuh"

// Only what is strictly greater than this is ever selected; index 0 stands for nothing found.
constexpr zinc::Best nothing = {-3.4e38f, 0};

ZINC_KERNEL void __launch_bounds__(argmax_tile::threads)
    argmax(const float* __restrict__ logits, uint2* partials, uint32_t* __restrict__ result, argmax_push p) {
  zinc::wait_for_previous();
  ZINC_SHARED(zinc::Best[zinc::max_block_warps], scratch);
  zinc::Best best = nothing;
  const uint64_t step = uint64_t{argmax_tile::threads} * gridDim.x;
  const uint64_t own = uint64_t{blockIdx.x} * argmax_tile::threads + threadIdx.x;
  if (p.phase == 0) {
    const uint32_t groups = p.n / zinc::wide;
    for (uint64_t i = own; i < groups; i += step) {
      const zinc::Span<zinc::wide> at = {i * zinc::wide};
      const auto values = at.of(logits);
#pragma unroll
      for (unsigned e = 0; e < zinc::wide; ++e) {
        best.take_better({values.at[e], static_cast<uint32_t>(at.first) + e});
      }
    }
    const uint32_t last = groups * zinc::wide + threadIdx.x;
    if (blockIdx.x == 0 && last < p.n) best.take_better({logits[last], last});
    zinc::with_block_best(best, scratch,
                          [=](zinc::Best b) { partials[blockIdx.x] = make_uint2(__float_as_uint(b.value), b.index); });
  } else {
    for (uint64_t i = own; i < p.n; i += step) {
      const uint2 pair = partials[i];
      best.take_better({__uint_as_float(pair.x), pair.y});
    }
    zinc::with_block_best(best, scratch, [=](zinc::Best b) { result[0] = b.index; });
  }
}
