// Per-head norm and rotary embedding of one token's Q in place and of its K into the K cache, and its V, copied or
// normalised, into the V cache. Grid: x over the heads of Q, then of K, then of V; the block owns one head, a thread
// every blockDim.x-th pair (Q, K) or element (V).
#include "zinc/qk_norm_rope_kv_write.h"

#include "zinc/norm_rope.cuh"

namespace {

ZINC_DEVICE void store_value_head(const float* __restrict__ from, float* __restrict__ to,
                                  const qk_norm_rope_kv_write_push& p) {
  if (p.v_norm == 0) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.head_dim; i += blockDim.x) to[i] = from[i];
    return;
  }
  zinc::norm_spans<zinc::norm_rope_held, 1>(
      p.head_dim, __uint_as_float(p.eps_bits), [=](auto at) { return at.of(from); }, [](auto, const auto&) {},
      [=](auto at) { return at.of(from); }, [](auto) { return 0; },
      [=](auto at, const auto& v, int, float r) { at.to(to, zinc::each([=](float x) { return x * r; }, v)); });
}

}  // namespace

ZINC_KERNEL void __launch_bounds__(32 * qk_norm_rope_kv_write_tile::max_warps, 1)
    qk_norm_rope_kv_write(float* q, const float* q_weight, const float* k_src, const float* k_weight,
                          const float* inv_freq, float* k_cache, const float* v_src, float* v_cache,
                          qk_norm_rope_kv_write_push p) {
  zinc::wait_for_previous();
  const zinc::RotaryAngles angles = {inv_freq, p.freq_base_bits, p.attn_scale_bits, p.rope_dim, p.position};
  const float eps = __uint_as_float(p.eps_bits);
  uint32_t head = blockIdx.x;
  if (head < p.n_q_heads) {
    float* const row = q + uint64_t{head} * p.head_dim;
    zinc::norm_and_rotate(row, q_weight, row, p.head_dim, angles, eps);
    return;
  }
  head -= p.n_q_heads;
  const bool is_value = head >= p.n_k_heads;
  if (is_value) head -= p.n_k_heads;
  const uint64_t row = uint64_t{head} * p.head_dim;
  if (is_value) {
    store_value_head(v_src + row, v_cache + p.dst_offset + row, p);
  } else {
    zinc::norm_and_rotate(k_src + row, k_weight, k_cache + p.dst_offset + row, p.head_dim, angles, eps);
  }
}
