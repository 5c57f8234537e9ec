// The k largest truncated router logits of one token and their softmax weights. Grid: one block of one warp; a lane
// owns every 32nd expert.
#include "zinc/softmax_topk_v2.h"

#include "zinc/topk.cuh"

ZINC_KERNEL void __launch_bounds__(zinc::warp_size)
    softmax_topk_v2(const float* logits, uint32_t* routing, softmax_topk_v2_push p) {
  zinc::wait_for_previous();
  ZINC_SHARED(float[softmax_topk_v2_tile::max_selected], selected);
  zinc::select_experts<zinc::TruncatedOrder>(logits, routing, p.n_experts, p.k, __uint_as_float(p.scale_bits),
                                             selected);
}
