// Index of the largest logit, in two calls. Phase 0: `workgroups` blocks in x, block w reduces the logits
// w * threads + t, then steps of threads * workgroups, to the pair (value, index) w. Phase 1: one block reduces the n
// pairs to the token. Equal values go to the lowest index in both phases.
//@ tile = { threads = 256 }
//@ block = ["threads"]
//@ grid = ["(1 - phase) * workgroups + phase"]
//@ overlap = true
#include "zinc/argmax.h"

#include "zinc/warp.cuh"

// Only what is strictly greater than this is ever selected; index 0 stands for nothing found.
constexpr zinc::Best nothing = {-3.4e38f, 0};

ZINC_KERNEL void __launch_bounds__(argmax_tile::threads)
    argmax(const float* __restrict__ logits, uint32_t* partials, uint32_t* __restrict__ result, argmax_push p) {
  zinc::wait_for_previous();
  ZINC_SHARED(zinc::Best[zinc::max_block_warps], scratch);
  zinc::Best best = nothing;
  const uint64_t step = uint64_t{argmax_tile::threads} * gridDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * argmax_tile::threads + threadIdx.x; i < p.n; i += step) {
    best.take_better(p.phase == 0 ? zinc::Best{logits[i], static_cast<uint32_t>(i)}
                                  : zinc::Best{__uint_as_float(partials[2 * i]), partials[2 * i + 1]});
  }
  best = zinc::block_argmax(best, scratch);
  if (threadIdx.x != 0) return;
  if (p.phase == 0) {
    partials[2 * blockIdx.x] = __float_as_uint(best.value);
    partials[2 * blockIdx.x + 1] = best.index;
  } else {
    result[0] = best.index;
  }
}
