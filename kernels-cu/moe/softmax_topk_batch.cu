// softmax_topk_v2 for a run of tokens. Grid: x over groups of `warps` tokens; a warp owns one token, a lane every 32nd
// expert.
#include "zinc/softmax_topk_batch.h"

#include "zinc/topk.cuh"

ZINC_KERNEL void __launch_bounds__(zinc::warp_size* softmax_topk_batch_tile::warps)
    softmax_topk_batch(const float* logits, uint32_t* routing, softmax_topk_batch_push p) {
  zinc::wait_for_previous();
  using namespace softmax_topk_batch_tile;
  ZINC_SHARED(float[warps][max_selected], selected);
  const uint64_t local = uint64_t{blockIdx.x} * warps + zinc::warp_id();
  if (local >= p.n_tokens) return;
  const uint64_t token = p.token_base + local;
  zinc::select_experts<zinc::TruncatedOrder>(logits + token * p.logits_stride, routing + token * p.output_stride,
                                             p.n_experts, p.k, __uint_as_float(p.scale_bits),
                                             selected[zinc::warp_id()]);
}
