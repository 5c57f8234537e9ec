// Selection of the k largest router logits of one token by one warp, and the softmax over the selected ones.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// The original has 64 lanes, each of which owns the experts of one residue modulo 64. Its tie rules follow from that,
// so the residue classes are part of the contract.
constexpr unsigned topk_residues = 64;
constexpr unsigned topk_max_experts = 256;

// Bits of a float, reordered so that unsigned comparison orders the floats.
ZINC_DEVICE uint32_t ordered_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// How softmax_topk compares the best experts of the residue classes: by the exact logit (-0 equals +0), then the lower
// residue. The expert is in the low 8 bits of a key; no key is 0.
struct ExactOrder {
  ZINC_DEVICE static uint64_t key(float logit, uint32_t expert) {
    const uint32_t later = 0xffffu - expert % topk_residues;
    return uint64_t{ordered_bits(logit + 0.0f)} << 32 | later << 8 | expert;
  }
  ZINC_DEVICE static uint32_t expert(uint64_t key) { return static_cast<uint32_t>(key) & 0xffu; }
  ZINC_DEVICE static float value(float logit) { return logit; }
};

// How softmax_topk_v2 compares them: by the logit without its low 8 bits (+0 above -0), then the lower expert. The
// softmax too takes the truncated logits.
struct TruncatedOrder {
  static constexpr uint32_t dropped = 0xffu;
  ZINC_DEVICE static uint64_t key(float logit, uint32_t expert) {
    return (ordered_bits(logit) & ~dropped) | (dropped - expert);
  }
  ZINC_DEVICE static uint32_t expert(uint64_t key) { return dropped - (static_cast<uint32_t>(key) & dropped); }
  ZINC_DEVICE static float value(float logit) { return __uint_as_float(__float_as_uint(logit) & ~dropped); }
};

// Writes the routing row of one token: k expert ids, then their k softmax weights of value * scale. The warp owns the
// token; a lane owns the residue classes lane and lane + 32. `selected` is shared memory for k floats of this warp.
// Logits of -infinity and NaN are never selected: the slots that remain get expert 0 and the value -infinity.
template <class Order>
ZINC_DEVICE void select_experts(const float* __restrict__ logits, uint32_t* __restrict__ routing, uint32_t n_experts,
                                uint32_t k, float scale, float* selected) {
  constexpr unsigned lane_experts = topk_max_experts / warp_size;
  static_assert(topk_residues == 2 * warp_size, "the experts of a lane alternate between its two residue classes");
  const float nothing = -__uint_as_float(0x7f800000u);

  float logit[lane_experts];
#pragma unroll
  for (unsigned j = 0; j < lane_experts; ++j) {
    const uint32_t expert = lane_id() + j * warp_size;
    logit[j] = expert < n_experts ? logits[expert] : nothing;
  }

  for (uint32_t slot = 0; slot < k; ++slot) {
    float best[2] = {nothing, nothing};
    uint32_t best_expert[2] = {0, 0};
#pragma unroll
    for (unsigned j = 0; j < lane_experts; ++j) {
      if (logit[j] > best[j % 2]) {
        best[j % 2] = logit[j];
        best_expert[j % 2] = lane_id() + j * warp_size;
      }
    }
    uint64_t key = 0;
    float value = nothing;
#pragma unroll
    for (unsigned c = 0; c < 2; ++c) {
      const uint64_t class_key = best[c] > nothing ? Order::key(best[c], best_expert[c]) : 0;
      if (class_key > key) {
        key = class_key;
        value = best[c];
      }
    }
    const uint64_t winner = warp_max_key(key);
    const uint32_t expert = winner == 0 ? 0 : Order::expert(winner);
    if (winner == 0 ? lane_id() == 0 : winner == key) {
      routing[slot] = expert;
      selected[slot] = Order::value(value) * scale;
    }
#pragma unroll
    for (unsigned j = 0; j < lane_experts; ++j) {
      if (winner != 0 && expert == lane_id() + j * warp_size) logit[j] = nothing;
    }
  }
  __syncwarp();

  // Every lane forms the same sum in slot order.
  float largest = nothing;
  for (uint32_t slot = 0; slot < k; ++slot) largest = fmaxf(largest, selected[slot]);
  float sum = 0.0f;
  for (uint32_t slot = 0; slot < k; ++slot) sum += expf(selected[slot] - largest);
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (uint32_t slot = lane_id(); slot < k; slot += warp_size) {
    routing[k + slot] = __float_as_uint(expf(selected[slot] - largest) * factor);
  }
}

}  // namespace zinc
