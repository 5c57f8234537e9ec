// The gated delta rule: a state matrix per head that decays, is corrected by a rank-1 update and read out, token by
// token.
#pragma once
#include "zinc/activation.cuh"
#include "zinc/async_copy.cuh"
#include "zinc/flagged.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// Columns of the state that a kernel can hold: four of each lane of a warp.
constexpr unsigned delta_net_max_width = 128;

struct DeltaNetBuffers {
  const float* __restrict__ conv_out;
  const void* __restrict__ dt_bias;
  const float* __restrict__ alpha;
  const float* __restrict__ beta;
  const void* __restrict__ ssm_a;
  float* __restrict__ state;
  float* __restrict__ out;
};

// How a head's gate follows from the token's alpha.
struct HeadGates {
  float bias;
  float coefficient;

  template <class Push>
  ZINC_DEVICE HeadGates(const DeltaNetBuffers& buffers, const Push& p, uint32_t head)
      : bias(p.has_dt_bias != 0 ? flagged_element(buffers.dt_bias, head, p.dt_bias_is_f16) : 0.0f),
        coefficient(p.has_ssm_a != 0 ? flagged_element(buffers.ssm_a, head, p.ssm_a_is_f16) : -1.0f) {}

  ZINC_DEVICE float decay(float alpha) const { return expf(softplus(alpha + bias) * coefficient); }
};

// Factor that gives a vector with this sum of squares unit length; the clamp is on the sum.
ZINC_DEVICE float unit_length_factor(float square_sum) { return 1.0f / sqrtf(fmaxf(square_sum, 1e-12f)); }

template <unsigned elements>
ZINC_DEVICE float warp_dot(const float (&a)[elements], const float (&b)[elements]) {
  float sum = 0.0f;
#pragma unroll
  for (unsigned j = 0; j < elements; ++j) sum = fmaf(a[j], b[j], sum);
  return warp_sum(sum);
}

// The recurrence for any widths up to delta_net_max_width. Each of the first `warps` warps of block (head, y) owns
// `rows` rows of the head's state, from row y * warps * rows on; other warps have no work. A lane holds the columns
// lane, lane + 32, ... of the warp's rows in registers from the first token to the last; rows depend on no other row,
// so no barrier is needed.
template <unsigned warps, unsigned rows, class Push>
ZINC_DEVICE void delta_net_any_width(const DeltaNetBuffers& buffers, const Push& p) {
  constexpr unsigned lane_columns = delta_net_max_width / warp_size;
  const uint32_t value_dim = p.head_v_dim;
  const uint32_t key_dim = p.d_state;
  const uint32_t head = blockIdx.x;
  const uint32_t first_row = (blockIdx.y * warps + warp_id()) * rows;
  if (warp_id() >= warps || first_row >= value_dim) return;

  const uint32_t group = head % p.n_group;
  const uint32_t width = min(value_dim, key_dim);
  const uint64_t keys = uint64_t{p.n_group} * key_dim;
  const HeadGates head_gates(buffers, p, head);
  const float query_scale = 1.0f / sqrtf(static_cast<float>(key_dim));
  float* const rows_state = buffers.state + (uint64_t{head} * value_dim + first_row) * value_dim;

  float s[rows][lane_columns];
#pragma unroll
  for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      const bool exists = first_row + r < value_dim && column < value_dim;
      s[r][j] = exists ? rows_state[r * value_dim + column] : 0.0f;
    }
  }

  for (uint32_t t = 0; t < p.n_tok; ++t) {
    const float* const token = buffers.conv_out + uint64_t{t} * p.conv_stride_tok;
    const float* const values = token + 2 * keys + uint64_t{head} * value_dim + first_row;
    const uint64_t gates = uint64_t{t} * p.ab_stride_tok + head;
    float* const token_out = buffers.out + uint64_t{t} * p.y_stride_tok + uint64_t{head} * value_dim + first_row;

    float q[lane_columns];
    float k[lane_columns];
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      q[j] = column < width ? token[uint64_t{group} * key_dim + column] : 0.0f;
      k[j] = column < width ? token[keys + uint64_t{group} * key_dim + column] : 0.0f;
    }
    const float q_factor = unit_length_factor(warp_dot(q, q)) * query_scale;
    const float k_factor = unit_length_factor(warp_dot(k, k));
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      q[j] *= q_factor;
      k[j] *= k_factor;
    }
    const float gate = head_gates.decay(buffers.alpha[gates]);
    const float strength = sigmoid(buffers.beta[gates]);

#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const bool exists = first_row + r < value_dim;
#pragma unroll
      for (unsigned j = 0; j < lane_columns; ++j) s[r][j] *= gate;
      const float value = exists ? values[r] : 0.0f;
      const float correction = strength * (value - warp_dot(s[r], k));
#pragma unroll
      for (unsigned j = 0; j < lane_columns; ++j) {
        // Columns past the keys only decay, whatever the correction is.
        if (lane_id() + j * warp_size < width) s[r][j] = fmaf(correction, k[j], s[r][j]);
      }
      const float read_out = warp_dot(s[r], q);
      if (exists && lane_id() == r) token_out[r] = read_out;
    }
  }

#pragma unroll
  for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
    for (unsigned j = 0; j < lane_columns; ++j) {
      const uint32_t column = lane_id() + j * warp_size;
      if (first_row + r < value_dim && column < value_dim) rows_state[r * value_dim + column] = s[r][j];
    }
  }
}

// The recurrence for 128 x 128 states. Per token, with raw q and k, f_q and f_k the factors that normalise them (1
// where they come normalised), gate g, strength b, and S the state row before the token:
//   e = b f_k (v - g f_k (S.k)),  S' = g S + e k,  out = g f_q (S.q) + e f_q (k.q)
// which is the contract's S' and S'.q, but has both sums over the row start from the same S, so that only S.k is waited
// for. The block's row warps hold the rows of the state, its helper warps fetch the tokens and make the scalars, one
// chunk of tokens ahead of the row warps. A row lies over row_lanes lanes, of which each holds every row_lanes-th quad
// of lane_rows rows: more rows a lane mean fewer loads of q and k, more lanes a row mean more shuffles.
template <unsigned row_lanes, unsigned lane_rows, unsigned row_warps, unsigned helper_warps, unsigned chunk,
          bool normalise>
struct DeltaNet128 {
  static constexpr unsigned width = 128;
  static constexpr unsigned warp_rows = warp_size / row_lanes * lane_rows;
  static constexpr unsigned block_rows = row_warps * warp_rows;
  static constexpr unsigned chunks_on_chip = 3;  // in use, being prepared, being fetched
  static constexpr unsigned state_pitch = width / 4;
  static constexpr unsigned row_quads = state_pitch / row_lanes;
  static constexpr unsigned helper_tokens = chunk / helper_warps;
  static_assert(helper_tokens * helper_warps == chunk, "helper warps have equal shares of a chunk");
  static_assert(width % block_rows == 0 && row_lanes % lane_rows == 0, "every row has its lanes");

  // The factors of a token.
  struct Factors {
    float gate;
    float predict;   // g f_k
    float correct;   // b f_k
    float read;      // g f_q
    float read_new;  // f_q (k.q)
    float unused[3];
  };
  struct Token {
    float4 q[width / 4];
    float4 k[width / 4];
    float v[block_rows];
    Factors factors;
  };

  template <class Push>
  ZINC_DEVICE static void run(const DeltaNetBuffers& buffers, const Push& p, Token* shared) {
    const uint32_t head = blockIdx.x;
    const uint32_t block_row = blockIdx.y * block_rows;
    const uint32_t chunks = (p.n_tok + chunk - 1) / chunk;
    // A block's buffers: as many as there are chunks, up to chunks_on_chip, each as long as the first chunk.
    const uint32_t chunk_tokens = min(p.n_tok, chunk);
    // The same in all lanes, which the compiler must know, or it guards every shuffle.
    const unsigned warp = __shfl_sync(full_warp, warp_id(), 0);
    const bool has_rows = warp < row_warps;
    const uint32_t row = warp * warp_rows + lane_id() / row_lanes * lane_rows;  // the lane's first
    float4* const lane_state = reinterpret_cast<float4*>(buffers.state) +
                               (uint64_t{head} * width + block_row + row) * state_pitch + lane_id() % row_lanes;
    float* out = buffers.out + uint64_t{head} * width + block_row + row;
    float4 s[lane_rows][row_quads];
    const HeadGates head_gates(buffers, p, head);

    if (has_rows) {
#pragma unroll
      for (unsigned r = 0; r < lane_rows; ++r) {
#pragma unroll
        for (unsigned i = 0; i < row_quads; ++i) s[r][i] = lane_state[r * state_pitch + i * row_lanes];
      }
    } else {
      fetch(buffers, p, block_row, 0, shared);
      fetch(buffers, p, block_row, 1, shared + chunk_tokens);
      prepare(buffers, p, head_gates, 0, shared);
    }
    __syncthreads();
    for (uint32_t n = 0; n < chunks; ++n) {
      if (has_rows) {
        const Token* const tokens = shared + n % chunks_on_chip * chunk_tokens;
        const uint32_t last = min(chunk, p.n_tok - n * chunk) - 1;
        for (uint32_t t = 0; t <= last; ++t, out += p.y_stride_tok) step(s, tokens[t], row, out);
      } else {
        fetch(buffers, p, block_row, n + 2, shared + (n + 2) % chunks_on_chip * chunk_tokens);
        prepare(buffers, p, head_gates, n + 1, shared + (n + 1) % chunks_on_chip * chunk_tokens);
      }
      __syncthreads();
    }
    if (has_rows) {
#pragma unroll
      for (unsigned r = 0; r < lane_rows; ++r) {
#pragma unroll
        for (unsigned i = 0; i < row_quads; ++i) lane_state[r * state_pitch + i * row_lanes] = s[r][i];
      }
    }
  }

 private:
  ZINC_DEVICE static void load(float4 (&lane_quads)[row_quads], const float4 (&row)[width / 4]) {
#pragma unroll
    for (unsigned i = 0; i < row_quads; ++i) lane_quads[i] = row[i * row_lanes + lane_id() % row_lanes];
  }

  ZINC_DEVICE static void step(float4 (&s)[lane_rows][row_quads], const Token& token, uint32_t row, float* out) {
    const unsigned part = lane_id() % row_lanes;
    float4 k[row_quads];
    load(k, token.k);
    float4 q[row_quads];
    load(q, token.q);
    const Factors f = token.factors;
    float predicted[lane_rows];
#pragma unroll
    for (unsigned r = 0; r < lane_rows; ++r) predicted[r] = product(s[r], k);
#pragma unroll
    for (unsigned r = 0; r < lane_rows; ++r) predicted[r] = warp_sum<row_lanes>(predicted[r]);

    float read[lane_rows];
#pragma unroll
    for (unsigned r = 0; r < lane_rows; ++r) read[r] = product(s[r], q);
    const float read_sum = warp_sums<row_lanes>(read);

    // The lanes of a row are dealt to its lane_rows results.
    constexpr unsigned result_lanes = row_lanes / lane_rows;
    float result_e = 0.0f;
#pragma unroll
    for (unsigned r = 0; r < lane_rows; ++r) {
      const float e = f.correct * (token.v[row + r] - f.predict * predicted[r]);
      if (part / result_lanes == r) result_e = e;
#pragma unroll
      for (unsigned i = 0; i < row_quads; ++i) {
        const float4 old = s[r][i];
        s[r][i] = make_float4(fmaf(e, k[i].x, f.gate * old.x), fmaf(e, k[i].y, f.gate * old.y),
                              fmaf(e, k[i].z, f.gate * old.z), fmaf(e, k[i].w, f.gate * old.w));
      }
    }
    if (part % result_lanes == 0) out[part / result_lanes] = f.read * read_sum + result_e * f.read_new;
  }

  // The lane's part of the product of two rows, in four chains.
  ZINC_DEVICE static float product(const float4 (&a)[row_quads], const float4 (&b)[row_quads]) {
    float4 sum = make_float4(a[0].x * b[0].x, a[0].y * b[0].y, a[0].z * b[0].z, a[0].w * b[0].w);
#pragma unroll
    for (unsigned i = 1; i < row_quads; ++i) {
      sum = make_float4(fmaf(a[i].x, b[i].x, sum.x), fmaf(a[i].y, b[i].y, sum.y), fmaf(a[i].z, b[i].z, sum.z),
                        fmaf(a[i].w, b[i].w, sum.w));
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
  }

  ZINC_DEVICE static float product(float4 a, float4 b) { return fmaf(a.x, b.x, a.y * b.y) + fmaf(a.z, b.z, a.w * b.w); }

  // A helper warp's share of chunk n: tokens helper * helper_tokens ... Commits a group also where there is nothing to
  // fetch, so that the groups can be counted.
  template <class Push>
  ZINC_DEVICE static void fetch(const DeltaNetBuffers& buffers, const Push& p, uint32_t block_row, uint32_t n,
                                Token* to) {
    const uint32_t head = blockIdx.x;
    const uint64_t keys = uint64_t{p.n_group} * width;
    const unsigned first = (warp_id() - row_warps) * helper_tokens;
    const uint64_t t = uint64_t{n} * chunk + first;
    const uint32_t tokens = t < p.n_tok ? min(uint64_t{helper_tokens}, p.n_tok - t) : 0;
    const float* q = buffers.conv_out + t * p.conv_stride_tok + uint64_t{head % p.n_group} * width + 4 * lane_id();
    const float* v =
        buffers.conv_out + t * p.conv_stride_tok + 2 * keys + uint64_t{head} * width + block_row + 4 * lane_id();
    const bool has_v = 4 * lane_id() < block_rows;
    SharedPlace place = shared_place(to + first) + sizeof(float4) * lane_id();
    for (uint32_t i = 0; i < tokens; ++i) {
      if (p.conv_stride_tok % 4 == 0) {
        async_copy<16>(place, q);
        async_copy<16>(place + sizeof(Token::q), q + keys);
        if (has_v) async_copy<16>(place + sizeof(Token::q) + sizeof(Token::k), v);
      } else {
        for (unsigned e = 0; e < 4; ++e) {
          async_copy<4>(place + 4 * e, q + e);
          async_copy<4>(place + sizeof(Token::q) + 4 * e, q + keys + e);
          if (has_v) async_copy<4>(place + sizeof(Token::q) + sizeof(Token::k) + 4 * e, v + e);
        }
      }
      q += p.conv_stride_tok;
      v += p.conv_stride_tok;
      place += sizeof(Token);
    }
    async_commit();
  }

  // Waits for the helper warp's share of chunk n and makes the factors of its tokens. The lanes are dealt to the tokens
  // in order; a lane reads only the quads that it has fetched itself.
  template <class Push>
  ZINC_DEVICE static void prepare(const DeltaNetBuffers& buffers, const Push& p, const HeadGates& head_gates,
                                  uint32_t n, Token* chunk_shared) {
    constexpr unsigned token_lanes = warp_size / helper_tokens;
    constexpr unsigned sums = 4;  // q.q, k.k, k.q and none
    constexpr unsigned sum_lanes = token_lanes / sums;
    const unsigned first = (warp_id() - row_warps) * helper_tokens;
    const unsigned mine = lane_id() / token_lanes;
    const uint64_t t = uint64_t{n} * chunk + first + mine;
    const bool exists = t < p.n_tok;
    const uint64_t gates = t * p.ab_stride_tok + blockIdx.x;
    const float alpha = exists ? buffers.alpha[gates] : 0.0f;
    const float beta = exists ? buffers.beta[gates] : 0.0f;
    Factors f = {};
    f.gate = head_gates.decay(alpha);
    const float strength = sigmoid(beta);

    async_wait<1>();
    const uint64_t first_token = uint64_t{n} * chunk + first;
    float qq = 0.0f;
    float kk = 0.0f;
    float kq = 0.0f;
    if (first_token + 1 == p.n_tok) {
      // One token alone, as in decoding, which waits for nothing but this.
      const Token& token = chunk_shared[first];
      const float4 q = token.q[lane_id()];
      const float4 k = token.k[lane_id()];
      if (normalise) {
        qq = warp_sum(product(q, q));
        kk = warp_sum(product(k, k));
      }
      kq = warp_sum(product(k, q));
    } else if (first_token < p.n_tok) {
      float sum[helper_tokens * sums] = {};
#pragma unroll
      for (unsigned i = 0; i < helper_tokens; ++i) {
        if (first_token + i >= p.n_tok) continue;
        const Token& token = chunk_shared[first + i];
        const float4 q = token.q[lane_id()];
        const float4 k = token.k[lane_id()];
        sum[i * sums + 0] = normalise ? product(q, q) : 0.0f;
        sum[i * sums + 1] = normalise ? product(k, k) : 0.0f;
        sum[i * sums + 2] = product(k, q);
      }
      const float total = warp_sums(sum);
      const unsigned base = mine * token_lanes;
      qq = __shfl_sync(full_warp, total, base);
      kk = __shfl_sync(full_warp, total, base + sum_lanes);
      kq = __shfl_sync(full_warp, total, base + 2 * sum_lanes);
    }
    const float q_factor = normalise ? unit_length_factor(qq) * (1.0f / sqrtf(static_cast<float>(width))) : 1.0f;
    const float k_factor = normalise ? unit_length_factor(kk) : 1.0f;
    f.predict = f.gate * k_factor;
    f.correct = strength * k_factor;
    f.read = f.gate * q_factor;
    f.read_new = q_factor * kq;
    if (exists && lane_id() % token_lanes == 0) chunk_shared[first + mine].factors = f;
  }
};

}  // namespace zinc
