// Splitting packed query-and-gate heads into two tensors.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

// Block h splits packed head h, [query: head_dim][gate: head_dim], into head h of q and of gate; thread t copies the
// elements t, t + blockDim.x, ... of both halves. The words are copied as integers, so that NaN payloads survive.
ZINC_DEVICE void split_packed_head(const uint32_t* __restrict__ packed, uint32_t* __restrict__ q,
                                   uint32_t* __restrict__ gate, uint32_t head_dim) {
  const uint64_t to = uint64_t{blockIdx.x} * head_dim;
  const uint64_t from = 2 * to;
  for (uint64_t d = threadIdx.x; d < head_dim; d += blockDim.x) {
    const uint32_t query_word = packed[from + d];
    const uint32_t gate_word = packed[from + head_dim + d];
    q[to + d] = query_word;
    gate[to + d] = gate_word;
  }
}

}  // namespace zinc
