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

// The float of ordered bits.
ZINC_DEVICE float from_ordered_bits(uint32_t bits) {
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

ZINC_DEVICE uint32_t warp_max_u32(uint32_t value) {
#if ZINC_ARCH == 0 || ZINC_ARCH >= 80
  return __reduce_max_sync(full_warp, value);
#else
#pragma unroll
  for (unsigned offset = warp_size / 2; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(full_warp, value, offset));
  }
  return value;
#endif
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
    return logit > other.logit || (logit == other.logit && expert < other.expert);
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
// selection only compares the heads of the classes. `selected` is shared memory for k floats of this warp. Logits of
// -infinity and NaN are never selected: the slots that remain get expert 0 and the value -infinity.
template <class Order>
ZINC_DEVICE void select_experts(const float* __restrict__ logits, uint32_t* __restrict__ routing, uint32_t n_experts,
                                uint32_t k, float scale, float* selected) {
  constexpr unsigned classes = topk_residues / warp_size;
  constexpr unsigned class_experts = topk_max_experts / topk_residues;
  static_assert(class_experts == 4, "the sorting network is that of four");
  const float nothing = -__uint_as_float(0x7f800000u);

  Candidate queue[classes][class_experts];
#pragma unroll
  for (unsigned j = 0; j < class_experts; ++j) {
#pragma unroll
    for (unsigned c = 0; c < classes; ++c) {
      const uint32_t expert = lane_id() + c * warp_size + j * topk_residues;
      const float logit = expert < n_experts ? logits[expert] : nothing;
      queue[c][j] = {logit > nothing ? logit : nothing, expert};
    }
  }
  typename Order::Key key[classes];
#pragma unroll
  for (unsigned c = 0; c < classes; ++c) {
    put_in_order(queue[c][0], queue[c][1]);
    put_in_order(queue[c][2], queue[c][3]);
    put_in_order(queue[c][0], queue[c][2]);
    put_in_order(queue[c][1], queue[c][3]);
    put_in_order(queue[c][1], queue[c][2]);
    key[c] = queue[c][0].logit > nothing ? Order::key(queue[c][0].logit, queue[c][0].expert) : 0;
  }

  for (uint32_t slot = 0; slot < k; ++slot) {
    const auto winner = Order::largest(max(key[0], key[1]));
    if (winner == 0 ? lane_id() == 0 : winner == max(key[0], key[1])) {
      routing[slot] = winner == 0 ? 0 : Order::expert(winner);
      selected[slot] = winner == 0 ? nothing * scale : Order::value(winner) * scale;
    }
#pragma unroll
    for (unsigned c = 0; c < classes; ++c) {
      if (winner != 0 && key[c] == winner) {
#pragma unroll
        for (unsigned j = 0; j + 1 < class_experts; ++j) queue[c][j] = queue[c][j + 1];
        queue[c][class_experts - 1].logit = nothing;
        key[c] = queue[c][0].logit > nothing ? Order::key(queue[c][0].logit, queue[c][0].expert) : 0;
      }
    }
  }
  __syncwarp();

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
