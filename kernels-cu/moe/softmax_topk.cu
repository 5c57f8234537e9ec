// The k largest router logits of one token and their softmax weights. Grid: one block of one warp; a lane owns every
// 32nd expert.
#include "zinc/softmax_topk.h"

#include "zinc/topk.cuh"

ZINC_KERNEL void __launch_bounds__(zinc::warp_size)
    softmax_topk(const float* logits, uint32_t* routing, softmax_topk_push p) {
  zinc::wait_for_previous();
  ZINC_SHARED(float[zinc::topk_max_experts], selected);
  zinc::select_experts<zinc::ExactOrder>(logits, routing, p.n_experts, p.k, 1.0f, selected);
}
