// Matrix-vector products of the experts that tokens are routed to, whose matrices are stacked in one tensor. Expert ids
// are read on the device and are the caller's responsibility.
#pragma once

#include "zinc/dmmv_fused.cuh"

namespace zinc {

// The matrices of experts, `stride` bytes apart, in one tensor or two.
template <unsigned matrices>
struct Experts {
  const uint8_t* first[matrices];
  uint64_t stride;

  ZINC_DEVICE const uint8_t* matrix(unsigned i, uint32_t expert) const { return first[i] + expert * stride; }
  ZINC_DEVICE bool are_aligned(unsigned alignment) const {
    bool aligned = stride % alignment == 0;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) aligned = aligned && is_aligned(first[i], alignment);
    return aligned;
  }
};

// The work of one routing slot: one vector, what to do with the rows of its expert.
template <class Finish>
struct SlotWork {
  const float* x;
  Finish finish;
};

// The functions below are given a way to go through slots. Way::run(experts, routing, slots, m, k, work) multiplies,
// for every slot, the matrices of expert routing[slot] as work(slot) says.

// For every routing slot j, row r: y[j m + r] = row r of expert routing[j] times the vector at x + j x_expert_stride.
template <class Way, class Push>
ZINC_DEVICE void dmmv_moe(const uint8_t* weights, const uint8_t* x, uint8_t* y, const uint32_t* routing,
                          const Push& p) {
  Way::run(Experts<1>{{weights}, p.expert_stride}, routing, p.n_slots, p.m, p.k, [=](uint32_t slot) {
    return SlotWork<StoreRow>{at_byte<float>(x, p.x_offset) + uint64_t{slot} * p.x_expert_stride,
                              {at_byte<float>(y, p.y_offset) + uint64_t{slot} * p.m, 0, false}};
  });
}

// The same for every (token, slot) pair of a dense id table; the slots of a token share its vector.
template <class Way, class Push>
ZINC_DEVICE void dmmv_moe_batched(const uint8_t* weights, const float* x, float* y, const uint32_t* routing,
                                  const Push& p) {
  const uint32_t pairs = p.n_tokens * p.n_experts_used;
  Way::run(Experts<1>{{weights}, p.expert_stride}, routing, pairs, p.m, p.k, [=](uint32_t pair) {
    const uint32_t token = pair / p.n_experts_used;
    const uint32_t slot = pair % p.n_experts_used;
    return SlotWork<StoreRow>{x + uint64_t{token} * p.x_token_stride,
                              {y + uint64_t{token} * p.y_token_stride + uint64_t{slot} * p.m, 0, false}};
  });
}

// Gate and up products without an activation.
struct StoreBoth {
  float* gate;
  float* up;

  ZINC_DEVICE void operator()(uint32_t r, unsigned, const float (&dots)[2]) const {
    gate[r] = dots[0];
    up[r] = dots[1];
  }
};

template <class Way, class Push>
ZINC_DEVICE void dmmv_moe_gate_up(const uint8_t* gate, const uint8_t* up, const uint8_t* x, uint8_t* y_gate,
                                  uint8_t* y_up, const uint32_t* routing, const Push& p) {
  Way::run(Experts<2>{{gate, up}, p.expert_stride}, routing, p.n_slots, p.m, p.k, [=](uint32_t slot) {
    const uint64_t out = uint64_t{slot} * p.m;
    return SlotWork<StoreBoth>{at_byte<float>(x, p.x_offset) + uint64_t{slot} * p.x_expert_stride,
                               {at_byte<float>(y_gate, p.y_offset) + out, at_byte<float>(y_up, p.y_offset) + out}};
  });
}

// y[j m + r] = Activation(gate, up) with the vector of slot j at x + j x_stride.
template <class Way, class Activation, class Push>
ZINC_DEVICE void dmmv_moe_gated(const uint8_t* gate, const uint8_t* up, const uint8_t* x, uint32_t x_stride, uint8_t* y,
                                const uint32_t* routing, const Push& p) {
  Way::run(Experts<2>{{gate, up}, p.expert_stride}, routing, p.n_slots, p.m, p.k, [=](uint32_t slot) {
    return SlotWork<StoreGated<Activation>>{at_byte<float>(x, p.x_offset) + uint64_t{slot} * x_stride,
                                            {at_byte<float>(y, p.y_offset) + uint64_t{slot} * p.m}};
  });
}

}  // namespace zinc
