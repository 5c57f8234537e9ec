// Splitting packed query-and-gate heads into two tensors.
#pragma once
#include "zinc/span.cuh"

namespace zinc {

template <unsigned width>
ZINC_DEVICE void split_head_spans(const uint32_t* __restrict__ packed, uint32_t* __restrict__ q,
                                  uint32_t* __restrict__ gate, uint32_t head_dim) {
  for (uint64_t d = threadIdx.x * width; d < head_dim; d += blockDim.x * width) {
    const Span<width> at = {d};
    const auto query_words = at.of(packed);
    const auto gate_words = at.of(packed + head_dim);
    at.to(q, query_words);
    at.to(gate, gate_words);
  }
}

// Splits the packed head of this thread's threadIdx.y, [query: head_dim][gate: head_dim], into a head of q and one of
// gate: the grid holds ceil_div(heads, blockDim.y) blocks. A thread copies every blockDim.x-th span of both halves. The
// words are copied as integers, so that NaN payloads survive.
ZINC_DEVICE void split_packed_head(const uint32_t* __restrict__ packed, uint32_t* __restrict__ q,
                                   uint32_t* __restrict__ gate, uint32_t head_dim, uint64_t heads) {
  const uint64_t head = uint64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (head >= heads) return;
  const uint64_t to = head * head_dim;
  if (head_dim % wide == 0) {
    split_head_spans<wide>(packed + 2 * to, q + to, gate + to, head_dim);
  } else {
    split_head_spans<1>(packed + 2 * to, q + to, gate + to, head_dim);
  }
}

}  // namespace zinc
