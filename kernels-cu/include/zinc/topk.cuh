// Selection of the k largest router logits of one token by one warp, and the softmax over the selected ones.
#pragma once
#include "zinc/warp.cuh"

namespace zinc {

// The original has 64 lanes, each of which owns the experts of one residue modulo 64. Its tie rules follow from that,
// so the residue classes are part of the contract.
constexpr unsigned topk_residues = 64;
constexpr unsigned topk_max_experts = 256;

// The float of ordered bits.
ZINC_DEVICE float from_ordered_bits(uint32_t bits) {
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// How softmax_topk compares the best experts of the residue classes: by the exact logit (-0 equals +0), then the lower
// residue. The expert is in the low 8 bits of a key; no key is 0.
struct ExactOrder {
  using Key = uint64_t;
  ZINC_DEVICE static Key key(float logit, uint32_t expert) {
    const uint32_t later = 0xffffu - expert % topk_residues;
    return uint64_t{ordered_bits(logit + 0.0f)} << 32 | later << 8 | expert;
  }
  ZINC_DEVICE static Key largest(Key key) {
    const uint32_t high = warp_max_u32(static_cast<uint32_t>(key >> 32));
    const uint32_t low = static_cast<uint32_t>(key >> 32) == high ? static_cast<uint32_t>(key) : 0;
    return uint64_t{high} << 32 | warp_max_u32(low);
  }
  ZINC_DEVICE static uint32_t expert(Key key) { return static_cast<uint32_t>(key) & 0xffu; }
  ZINC_DEVICE static float value(Key key) { return from_ordered_bits(static_cast<uint32_t>(key >> 32)); }
};

// How softmax_topk_v2 compares them: by the logit without its low 8 bits (+0 above -0), then the lower expert. The
// softmax too takes the truncated logits.
struct TruncatedOrder {
  using Key = uint32_t;
  static constexpr uint32_t dropped = 0xffu;
  ZINC_DEVICE static Key key(float logit, uint32_t expert) {
    return (ordered_bits(logit) & ~dropped) | (dropped - expert);
  }
  ZINC_DEVICE static Key largest(Key key) { return warp_max_u32(key); }
  ZINC_DEVICE static uint32_t expert(Key key) { return dropped - (key & dropped); }
  // A negative logit has its bits inverted: those that were dropped have to be dropped again.
  ZINC_DEVICE static float value(Key key) {
    return __uint_as_float(__float_as_uint(from_ordered_bits(key & ~dropped)) & ~dropped);
  }
};

// One expert in the order in which its residue class is emptied: the larger logit first, then the lower expert.
struct Candidate {
  float logit;
  uint32_t expert;

  ZINC_DEVICE bool before(const Candidate& other) const {
    // Without short circuits, which would branch.
    return (logit > other.logit) | ((logit == other.logit) & (expert < other.expert));
  }
};

ZINC_DEVICE void put_in_order(Candidate& a, Candidate& b) {
  const bool good = a.before(b);
  const Candidate first = good ? a : b;
  b = good ? b : a;
  a = first;
}

// Writes the routing row of one token: k expert ids, then their k softmax weights of value * scale. The warp owns the
// token; a lane owns the residue classes lane and lane + 32, whose experts it sorts once, so that a round of the
// selection only compares the heads of the classes. Slot s is kept by lane s % 32. `selected` is shared memory for k
// floats of this warp. Logits of -infinity and NaN are never selected: the slots that remain get expert 0 and the value
// -infinity.
template <class Order>
ZINC_DEVICE void select_experts(const float* __restrict__ logits, uint32_t* __restrict__ routing, uint32_t n_experts,
                                uint32_t k, float scale, float* selected) {
  using Key = typename Order::Key;
  constexpr unsigned classes = topk_residues / warp_size;
  constexpr unsigned class_experts = topk_max_experts / topk_residues;
  static_assert(classes == 2 && class_experts == 4, "the sorting network is that of four, twice");
  const float nothing = -__uint_as_float(0x7f800000u);

  Key queue[classes][class_experts];
  Candidate candidate[classes][class_experts];
#pragma unroll
  for (unsigned c = 0; c < classes; ++c) {
#pragma unroll
    for (unsigned j = 0; j < class_experts; ++j) {
      const uint32_t expert = lane_id() + c * warp_size + j * topk_residues;
      const float logit = expert < n_experts ? logits[expert] : nothing;
      candidate[c][j] = {logit > nothing ? logit : nothing, expert};
    }
  }
#pragma unroll
  for (unsigned c = 0; c < classes; ++c) {
    put_in_order(candidate[c][0], candidate[c][1]);
    put_in_order(candidate[c][2], candidate[c][3]);
    put_in_order(candidate[c][0], candidate[c][2]);
    put_in_order(candidate[c][1], candidate[c][3]);
    put_in_order(candidate[c][1], candidate[c][2]);
#pragma unroll
    for (unsigned j = 0; j < class_experts; ++j) {
      const Candidate& next = candidate[c][j];
      queue[c][j] = next.logit > nothing ? Order::key(next.logit, next.expert) : 0;
    }
  }

  for (uint32_t base = 0; base < k; base += warp_size) {
    const uint32_t slots = min(k - base, warp_size);
    Key own = 0;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const Key winner = Order::largest(max(queue[0][0], queue[1][0]));
      own = slot == lane_id() ? winner : own;
      // No key occurs twice but that of nothing, which only leaves more of the same.
#pragma unroll
      for (unsigned c = 0; c < classes; ++c) {
        const bool taken = queue[c][0] == winner;
#pragma unroll
        for (unsigned j = 0; j + 1 < class_experts; ++j) queue[c][j] = taken ? queue[c][j + 1] : queue[c][j];
        queue[c][class_experts - 1] = taken ? 0 : queue[c][class_experts - 1];
      }
    }
    if (lane_id() < slots) {
      routing[base + lane_id()] = own == 0 ? 0 : Order::expert(own);
      selected[base + lane_id()] = (own == 0 ? nothing : Order::value(own)) * scale;
    }
  }

  // Every lane reads only what it wrote.
  float largest = nothing;
  for (uint32_t slot = lane_id(); slot < k; slot += warp_size) largest = fmaxf(largest, selected[slot]);
  largest = warp_max(largest);
  float sum = 0.0f;
  for (uint32_t slot = lane_id(); slot < k; slot += warp_size) sum += expf(selected[slot] - largest);
  sum = warp_sum(sum);
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (uint32_t slot = lane_id(); slot < k; slot += warp_size) {
    routing[k + slot] = __float_as_uint(expf(selected[slot] - largest) * factor);
  }
}

}  // namespace zinc
