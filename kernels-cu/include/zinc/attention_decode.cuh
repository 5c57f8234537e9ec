// Attention of one query token: the query heads of one kv head over a slice of the paged cache, each K and V row loaded
// once for all of them.
#pragma once
#include "zinc/async_copy.cuh"
#include "zinc/attention.cuh"
#include "zinc/attention_mma.cuh"
#include "zinc/cluster.cuh"

namespace zinc {

// Shared memory of a warp: its ring of K and V rows, then its result.
constexpr unsigned decode_warp_bytes = 16 * 1024;

constexpr unsigned min_of(unsigned a, unsigned b) { return a < b ? a : b; }

// One warp's online softmax of `rows` query heads over its share of the keys. A lane owns the elements 4 * lane .. 4 *
// lane + 3 of each 128 of a head, `quads` times; elements past head_dim are zero. For the scores of a step of `keys`
// keys the lanes are dealt to (row, key) pairs, row-major. A lane copies what it owns of the coming steps to its own
// places in shared memory, so that the warp needs no barrier.
template <unsigned quads, unsigned rows>
struct DecodeWarp {
  static constexpr unsigned keys = min_of(8 / quads, warp_size / rows);
  static constexpr unsigned stages = decode_warp_bytes / (2 * keys * quads * warp_size * sizeof(float4));
  static constexpr unsigned row_lanes = warp_size / rows;
  static constexpr unsigned score_lanes = row_lanes / keys;
  static constexpr unsigned batch = warp_size / keys;  // steps whose cache rows the lanes hold
  static_assert(score_lanes * keys * rows == warp_size && stages >= 2, "every lane belongs to one score");
  static_assert(rows * quads * warp_size * sizeof(float4) <= decode_warp_bytes, "the result replaces the ring");

  struct Stage {
    float4 k[keys][quads][warp_size];
    float4 v[keys][quads][warp_size];
  };
  static constexpr unsigned stage_bytes = sizeof(Stage);
  static constexpr unsigned quad_bytes = warp_size * sizeof(float4);

  float4 out[rows][quads];

  ZINC_DEVICE static unsigned element(unsigned quad) { return 4 * (quad * warp_size + lane_id()); }

  // Attends to the steps number first, first + stride, ... of the keys begin .. end - 1. The queries are at q, head_dim
  // apart; rows from `present` on repeat the last one. Returns the sums of the lane's row.
  ZINC_DEVICE SliceSums run(const float* q, uint32_t present, const PagedCache& cache, float scale, uint64_t begin,
                            uint64_t end, uint32_t first, uint32_t stride, Stage* ring) {
    float4 query[rows][quads];
#pragma unroll
    for (unsigned r = 0; r < rows; ++r) {
      const float* const row = q + uint64_t{min(r, present - 1)} * cache.head_dim;
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) {
        query[r][c] = element(c) < cache.head_dim ? *reinterpret_cast<const float4*>(row + element(c)) : zero();
        out[r][c] = zero();
      }
    }
    // The rows of K and V of all stages follow each other.
    float4* const every_row = reinterpret_cast<float4*>(ring);
    for (unsigned s = 0; s < stages * 2 * keys; ++s) {
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) {
        if (element(c) >= cache.head_dim) every_row[(s * quads + c) * warp_size + lane_id()] = zero();
      }
    }

    const uint64_t all_steps = (end - begin + keys - 1) / keys;
    const uint32_t steps = static_cast<uint32_t>(all_steps > first ? (all_steps - first + stride - 1) / stride : 0);
    SliceSums lane = {attention_floor, 0.0f};
    Rows ahead = {cache, begin, end, first, stride, 0};
    uint64_t row[keys];
    const SharedPlace places = shared_place(&ring[0].k[0][0][lane_id()]);
    for (unsigned s = 0; s < stages; ++s) {
      if (s < steps) ahead.of_step(s, row);
      fetch(s < steps, places + s * stage_bytes, cache.k, row, cache.head_dim);
      fetch(s < steps, places + s * stage_bytes + stage_bytes / 2, cache.v, row, cache.head_dim);
    }
    unsigned stage = 0;
    for (uint32_t n = 0; n < steps; ++n) {
      const bool more = n + stages < steps;
      if (more) ahead.of_step(n + stages, row);
      async_wait<2 * stages - 1>();
      float partial[rows * keys];
#pragma unroll
      for (unsigned j = 0; j < keys; ++j) {
        float4 key[quads];
#pragma unroll
        for (unsigned c = 0; c < quads; ++c) key[c] = ring[stage].k[j][c][lane_id()];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) {
          float sum = 0.0f;
#pragma unroll
          for (unsigned c = 0; c < quads; ++c) sum = add_dot(sum, query[r][c], key[c]);
          partial[r * keys + j] = sum;
        }
      }
      fetch(more, places + stage * stage_bytes, cache.k, row, cache.head_dim);

      const uint64_t t = begin + (first + uint64_t{n} * stride) * keys + lane_id() % row_lanes / score_lanes;
      const float weight = weigh(lane, scale * warp_sums(partial), t < end);

      async_wait<2 * stages - 1>();
#pragma unroll
      for (unsigned j = 0; j < keys; ++j) {
        float4 value[quads];
#pragma unroll
        for (unsigned c = 0; c < quads; ++c) value[c] = ring[stage].v[j][c][lane_id()];
#pragma unroll
        for (unsigned r = 0; r < rows; ++r) {
          const float w = __shfl_sync(full_warp, weight, r * row_lanes + j * score_lanes);
#pragma unroll
          for (unsigned c = 0; c < quads; ++c) out[r][c] = add_scaled(out[r][c], w, value[c]);
        }
      }
      fetch(more, places + stage * stage_bytes + stage_bytes / 2, cache.v, row, cache.head_dim);
      stage = stage + 1 < stages ? stage + 1 : 0;
    }
    lane.sum = warp_sum<row_lanes>(lane_id() % score_lanes == 0 ? lane.sum : 0.0f);
    return lane;
  }

 private:
  ZINC_DEVICE static float4 zero() { return make_float4(0, 0, 0, 0); }

  // The cache rows of steps in ascending order: the lanes look up those of `batch` steps at once.
  struct Rows {
    const PagedCache& cache;
    uint64_t begin;
    uint64_t end;
    uint32_t first;
    uint32_t stride;
    uint64_t lane_row;

    // In bytes. A key past the end repeats the last one, whose row is attended to anyway.
    ZINC_DEVICE void of_step(uint32_t step, uint64_t (&row)[keys]) {
      if (step % batch == 0) {
        const uint64_t t = begin + (first + (uint64_t{step} + lane_id() / keys) * stride) * keys + lane_id() % keys;
        lane_row = sizeof(float) * cache.row(static_cast<uint32_t>(min(t, end - 1)));
      }
#pragma unroll
      for (unsigned j = 0; j < keys; ++j) row[j] = __shfl_sync(full_warp, lane_row, step % batch * keys + j);
    }
  };

  // Starts the copies of what the lane owns of a step's rows, if there is such a step, to its places from `to` on.
  // Commits a group in any case, so that groups can be counted.
  ZINC_DEVICE static void fetch(bool exists, SharedPlace to, const float* from, const uint64_t (&row)[keys],
                                uint32_t head_dim) {
    if (exists && head_dim == 4 * quads * warp_size) {
      copy(to, from, row, [](unsigned) { return true; });
    } else if (exists) {
      copy(to, from, row, [=](unsigned c) { return element(c) < head_dim; });
    }
    async_commit();
  }

  // owns(c): whether the lane's quad number c is part of the head.
  template <class Owns>
  ZINC_DEVICE static void copy(SharedPlace to, const float* from, const uint64_t (&row)[keys], Owns owns) {
#pragma unroll
    for (unsigned j = 0; j < keys; ++j) {
      const unsigned char* const lane_row = reinterpret_cast<const unsigned char*>(from + 4 * lane_id()) + row[j];
#pragma unroll
      for (unsigned c = 0; c < quads; ++c) {
        if (owns(c)) async_copy<16>(to + (j * quads + c) * quad_bytes, lane_row + c * quad_bytes);
      }
    }
  }

  // The weight of the lane's score; moves the sums and the outputs to a new maximum where there is one.
  ZINC_DEVICE float weigh(SliceSums& lane, float score, bool attended) {
    // The maximum is never -infinity, so the exponents are NaN only for a NaN score or a score of +infinity, which the
    // contract wants to see in the sum and the output.
    const float new_max = fmaxf(lane.max, warp_max<row_lanes>(attended ? score : attention_floor));
    if (__any_sync(full_warp, new_max > lane.max)) {
      const float shrink = expf(lane.max - new_max);
      lane.max = new_max;
      lane.sum *= shrink;
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        const float row_shrink = __shfl_sync(full_warp, shrink, r * row_lanes);
#pragma unroll
        for (unsigned c = 0; c < quads; ++c) out[r][c] = scaled(out[r][c], row_shrink);
      }
    }
    const float weight = attended ? expf(score - lane.max) : 0.0f;
    lane.sum += weight;
    return weight;
  }
};

// The sums of a row from those of its parts, and the factors that move the parts' outputs to the common maximum.
template <unsigned parts, class PartSums>
ZINC_DEVICE SliceSums merge_sums(float (&factor)[parts], PartSums part) {
  SliceSums all = {attention_floor, 0.0f};
#pragma unroll
  for (unsigned i = 0; i < parts; ++i) all.max = fmaxf(all.max, part(i).max);
#pragma unroll
  for (unsigned i = 0; i < parts; ++i) {
    factor[i] = expf(part(i).max - all.max);
    all.sum = fmaf(factor[i], part(i).sum, all.sum);
  }
  return all;
}

// What the working warps of a block leave for merge_warps: for each row the sums, and from outputs + w * warp_quads on
// the outputs of warp w, row_quads for each row.
template <unsigned workers, unsigned rows>
struct WarpResults {
  SliceSums sums[workers][rows];
  SliceSums block_sums[rows];
};

// Combines the results of a cluster's warps, in warp order in each block and then in block order. Calls store(row, d,
// O[d .. d + 3], sums) for every row < present and every d < 4 * head_quads that is a multiple of four. Every thread of
// the cluster must call this.
template <unsigned warps, unsigned workers, unsigned rows, class Store>
ZINC_DEVICE void merge_warps(WarpResults<workers, rows>& results, float4* outputs, uint32_t warp_quads,
                             uint32_t row_quads, uint32_t head_quads, uint32_t present, Store store) {
  constexpr unsigned threads = warps * warp_size;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < rows * row_quads; i += threads) {
    const unsigned r = i / row_quads;
    float factor[workers];
    const SliceSums all = merge_sums(factor, [&](unsigned w) { return results.sums[w][r]; });
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (unsigned w = 0; w < workers; ++w) sum = add_scaled(sum, factor[w], outputs[w * warp_quads + i]);
    if (cluster_blocks() == 1) {
      if (r < present && i % row_quads < head_quads) store(r, 4 * (i % row_quads), sum, all);
    } else {
      // Only this thread reads element i of any warp.
      outputs[i] = sum;
      if (i % row_quads == 0) results.block_sums[r] = all;
    }
  }
  constexpr unsigned batch = 8;
  const uint32_t blocks = cluster_blocks();
  if (blocks > 1) {
    cluster_barrier();
    for (unsigned i = cluster_rank() * threads + threadIdx.x; i < rows * row_quads; i += blocks * threads) {
      const unsigned r = i / row_quads;
      SliceSums all = {attention_floor, 0.0f};
      float4 sum = make_float4(0, 0, 0, 0);
      for (unsigned first = 0; first < blocks; first += batch) {
        // All loads of a batch of blocks before the first of them is waited for.
        SliceSums part[batch];
        float4 output[batch];
#pragma unroll
        for (unsigned b = 0; b < batch; ++b) {
          const unsigned block = min(first + b, blocks - 1);
          part[b] = *cluster_peer(&results.block_sums[r], block);
          output[b] = *cluster_peer(outputs + i, block);
        }
        const float old_max = all.max;
#pragma unroll
        for (unsigned b = 0; b < batch; ++b) all.max = fmaxf(all.max, part[b].max);
        const float shrink = expf(old_max - all.max);
        all.sum *= shrink;
        sum = scaled(sum, shrink);
#pragma unroll
        for (unsigned b = 0; b < batch; ++b) {
          if (first + b >= blocks) break;
          const float factor = expf(part[b].max - all.max);
          all.sum = fmaf(factor, part[b].sum, all.sum);
          sum = add_scaled(sum, factor, output[b]);
        }
      }
      if (r < present && i % row_quads < head_quads) store(r, 4 * (i % row_quads), sum, all);
    }
  }
  cluster_leave();
}

// Attends with `present` query heads at q, at most `rows`. The keys begin .. end - 1 are dealt, a step at a time, to
// the warps of all blocks of the cluster. `shared` holds decode_warp_bytes for each warp. Calls store as merge_warps
// does. Every thread of the cluster must call this.
template <unsigned quads, unsigned rows, unsigned warps, class Store>
ZINC_DEVICE void attend_few(const float* q, uint32_t present, const PagedCache& cache, float scale, uint64_t begin,
                            uint64_t end, unsigned char* shared, Store store) {
  using Warp = DecodeWarp<quads, rows>;
  using Results = WarpResults<warps, rows>;
  constexpr unsigned row_quads = quads * warp_size;
  constexpr unsigned warp_quads = decode_warp_bytes / sizeof(float4);
  ZINC_SHARED(Results, results);
  float4* const outputs = reinterpret_cast<float4*>(shared);
  float4* const warp_outputs = outputs + warp_id() * warp_quads;

  Warp warp;
  const SliceSums lane = warp.run(q, present, cache, scale, begin, end, cluster_rank() * warps + warp_id(),
                                  cluster_blocks() * warps, reinterpret_cast<typename Warp::Stage*>(warp_outputs));
  __syncwarp();
#pragma unroll
  for (unsigned r = 0; r < rows; ++r) {
#pragma unroll
    for (unsigned c = 0; c < quads; ++c) warp_outputs[r * row_quads + c * warp_size + lane_id()] = warp.out[r][c];
  }
  if (lane_id() % Warp::row_lanes == 0) results.sums[warp_id()][lane_id() / Warp::row_lanes] = lane;
  merge_warps<warps>(results, outputs, warp_quads, row_quads, cache.head_dim / 4, present, store);
}

// attend_few for up to eight query heads of head_dim elements on the tensor cores. A warp takes sixteen keys at a time,
// whose K and V pass through its slots in pieces; one piece is on its way while another one is used. `shared` holds a
// DecodeMma::Shared.
template <unsigned head_dim, unsigned warps>
struct DecodeMma {
  using Attention = MmaAttention<head_dim>;
  static constexpr unsigned keys = Attention::keys;
  static constexpr unsigned part_quads = min_of(64, Attention::head_quads);
  static constexpr unsigned parts = Attention::head_quads / part_quads;
  // The queries of long heads take the shared memory of a warp.
  static constexpr unsigned workers = warps + 1 - parts;
  static constexpr unsigned slots = 2;
  // Lanes tell each other cache slots, of which no memory has 2^32 for such rows, and not the rows' first elements: one
  // shuffle instead of two. For short heads that was slower.
  static constexpr bool by_slot = head_dim > 128;
  // Eight lanes read two keys' four quads, or four keys' two: in different banks.
  static constexpr unsigned key_pitch = part_quads + 4;
  static constexpr unsigned value_pitch = part_quads + 2;
  using Results = WarpResults<workers, Attention::rows>;
  using Slot = float4[keys * key_pitch];  // a part of the keys or of the values of a tile
  struct Shared {
    Slot slot[workers][slots];
    typename Attention::Queries queries;
    typename Attention::Weights weights[workers];
  };
  static constexpr unsigned warp_quads = sizeof(Slot) * slots / sizeof(float4);
  static_assert(warp_quads >= Attention::rows * Attention::head_quads, "a warp's outputs take the place of its slots");

  template <class Store>
  ZINC_DEVICE static void attend(const float* q, uint32_t present, const PagedCache& cache, float scale, uint64_t begin,
                                 uint64_t end, Shared& shared, Store store) {
    ZINC_SHARED(Results, results);
    float4* const outputs = &shared.slot[0][0][0];
    Work work = {q, present, cache, scale, begin, end, shared, 0, 0, 0, 0, 0, 0};
    if (warp_id() < workers) work.start();
    Attention::split_queries(shared.queries, q, head_dim, present - 1, threadIdx.x, warps * warp_size);
    __syncthreads();
    if (warp_id() < workers) {
      Attention attention;
      work.run(attention);
      attention.for_each_output([&](unsigned r, unsigned quad, float4 o) {
        outputs[warp_id() * warp_quads + r * Attention::head_quads + quad] = o;
      });
      if (Attention::group() == 0) {
#pragma unroll
        for (unsigned e = 0; e < Attention::lane_rows; ++e) {
          results.sums[warp_id()][2 * Attention::part() + e] = {attention.max[e], attention.sum[e]};
        }
      }
    }
    merge_warps<warps>(results, outputs, warp_quads, Attention::head_quads, Attention::head_quads, present, store);
  }

 private:
  // The steps of one warp: the tiles of keys number first, first + stride, ... The blocks of the cluster take turns, so
  // that they have equal shares.
  struct Work {
    const float* q;
    uint32_t present;
    const PagedCache& cache;
    float scale;
    uint64_t begin;
    uint64_t end;
    Shared& shared;
    uint32_t first;
    uint32_t stride;
    uint32_t steps;
    unsigned used;        // slot of the next piece to be used
    uint64_t place;       // where key lane % keys of the step that is copied lies: cache slot or first element
    uint64_t next_place;  // the same of the step after it

    ZINC_DEVICE void start() {
      first = warp_id() * cluster_blocks() + cluster_rank();
      stride = cluster_blocks() * workers;
      const uint64_t all_steps = (end - begin + keys - 1) / keys;
      steps = static_cast<uint32_t>(all_steps > first ? (all_steps - first + stride - 1) / stride : 0);
      if (steps == 0) return;
      next_place = place_of(key_of_step(0));
      fetch<0>(0, 0);
      fetch<1>(0, 1);
    }

    ZINC_DEVICE void run(Attention& attention) {
      typename Attention::Weights& weights = shared.weights[warp_id()];
      attention.clear();
      for (uint32_t n = 0; n < steps; ++n) {
        typename Attention::Sums sums = {};
        multiply_piece<0>(n, sums);
        if constexpr (parts == 2) multiply_piece<1>(n, sums);
        float score[4];
        if (!Attention::join(score, sums)) {
          Attention::multiply_plainly(score, q, head_dim, present - 1, cache.k, cache.row(key_of_step(n)));
        }
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          const uint64_t t = begin + (first + uint64_t{n} * stride) * keys + i / 2 * 8 + Attention::group();
          score[i] = t < end ? scale * score[i] : hidden_score;
        }
        attention.weigh(score);
        Attention::store_weights(weights, score);
        add_piece<parts>(n, attention, weights);
        if constexpr (parts == 2) add_piece<parts + 1>(n, attention, weights);
      }
      attention.reduce_sums();
    }

   private:
    // A key past the end repeats the last one, whose row is attended to anyway.
    ZINC_DEVICE uint32_t key_of_step(uint32_t n) const {
      const uint64_t t = begin + (first + uint64_t{n} * stride) * keys + lane_id() % keys;
      return static_cast<uint32_t>(min(t, end - 1));
    }

    ZINC_DEVICE uint64_t place_of(uint32_t t) const { return by_slot ? cache.slot(t) : cache.row(t); }

    // First element of the row of a key of the step that is copied, in the cache of kv head 0 if by_slot.
    ZINC_DEVICE uint64_t row_of(unsigned key) const {
      if constexpr (by_slot) {
        return uint64_t{__shfl_sync(full_warp, static_cast<uint32_t>(place), key)} * (cache.n_kv_heads * head_dim);
      } else {
        return __shfl_sync(full_warp, place, key);
      }
    }

    template <unsigned piece>
    ZINC_DEVICE void multiply_piece(uint32_t n, typename Attention::Sums& sums) {
      const float4* const slot = arrive();
      Attention::template multiply_keys<part_quads>(
          sums, [=](unsigned key, unsigned i) { return slot[key * key_pitch + i]; }, shared.queries,
          piece * part_quads);
      replace<piece>(n);
    }

    template <unsigned piece>
    ZINC_DEVICE void add_piece(uint32_t n, Attention& attention, const typename Attention::Weights& weights) {
      const float4* const slot = arrive();
      attention.template add_values<part_quads>([=](unsigned key, unsigned i) { return slot[key * value_pitch + i]; },
                                                weights, (piece - parts) * part_quads);
      replace<piece>(n);
    }

    // Waits for the oldest piece on its way.
    ZINC_DEVICE const float4* arrive() const {
      async_wait<slots - 1>();
      __syncwarp();
      return shared.slot[warp_id()][used];
    }

    // Starts the copy of the piece that takes the place of the one just used.
    template <unsigned piece>
    ZINC_DEVICE void replace(uint32_t n) {
      __syncwarp();
      fetch<piece + slots>(n, used);
      used = used + 1 < slots ? used + 1 : 0;
    }

    // Starts the copy of a piece of step n, or of a later one if there are not so many pieces: the parts of K, then
    // those of V. Pieces are asked for in order. Commits a group in any case, so that groups can be counted.
    template <unsigned number>
    ZINC_DEVICE void fetch(uint32_t n, unsigned to) {
      constexpr unsigned piece = number % (2 * parts);
      constexpr unsigned pitch = piece < parts ? key_pitch : value_pitch;
      constexpr unsigned quads = part_quads;
      constexpr unsigned copy_rows = quads < warp_size ? warp_size / quads : 1;  // rows of one copy of the warp
      constexpr unsigned row_copies = quads < warp_size ? 1 : quads / warp_size;
      const uint32_t step = n + number / (2 * parts);
      if (step < steps) {
        if constexpr (piece == 0) {
          place = next_place;
          next_place = place_of(key_of_step(step + 1));
        }
        const unsigned quad = lane_id() % quads;
        const SharedPlace to_place = shared_place(shared.slot[warp_id()][to] + lane_id() / quads * pitch + quad);
        const float* const from = (piece < parts ? cache.k : cache.v) +
                                  (by_slot ? uint64_t{cache.kv_head} * head_dim : 0) + piece % parts * part_quads * 4 +
                                  4 * quad;
#pragma unroll
        for (unsigned key = 0; key < keys; key += copy_rows) {
          const float* const key_row = from + row_of(key + lane_id() / quads % copy_rows);
#pragma unroll
          for (unsigned c = 0; c < row_copies; ++c) {
            async_copy<16>(to_place + (key * pitch + c * warp_size) * sizeof(float4), key_row + 4 * c * warp_size);
          }
        }
      }
      async_commit();
    }
  };
};

// The query heads of a cluster, for a grid of x over (a kv head and more, group of up to `heads` of the kv head's query
// heads, block of the cluster), the last fastest.
template <unsigned heads>
struct HeadGroup {
  uint32_t kv_group;  // query heads of a kv head
  uint32_t number;
  uint32_t outer;  // number of what the grid has before the group

  ZINC_DEVICE HeadGroup(uint32_t n_heads, uint32_t n_kv_heads) : kv_group(n_heads / n_kv_heads) {
    const uint32_t groups = (kv_group + heads - 1) / heads;
    const uint32_t cluster = blockIdx.x / cluster_blocks();
    number = cluster % groups;
    outer = cluster / groups;
  }

  ZINC_DEVICE uint32_t first_head(uint32_t kv_head) const { return kv_head * kv_group + number * heads; }
  ZINC_DEVICE uint32_t present() const { return min(heads, kv_group - number * heads); }
};

// Attends with `present` query heads of one kv head, at most eight, at q, to the keys begin .. end - 1, by a cluster.
// `shared` holds decode_warp_bytes for each warp and a DecodeMma::Shared of the head's length up to max_mma_dim. Calls
// store(row, d, O[d .. d + 3], sums) for every row < present and every d < head_dim that is a multiple of four. Every
// thread of the cluster must call this.
template <unsigned warps, unsigned max_mma_dim, class Store>
ZINC_DEVICE void attend_heads(const float* q, uint32_t present, const PagedCache& cache, float scale, uint64_t begin,
                              uint64_t end, unsigned char* shared, Store store) {
  // The tensor cores take eight heads at a time, in the time that the others need for two or three.
  if constexpr (max_mma_dim > 0) {
    const auto attend = [&](auto head_dim) {
      using Attention = DecodeMma<head_dim.value, warps>;
      Attention::attend(q, present, cache, scale, begin, end, *reinterpret_cast<typename Attention::Shared*>(shared),
                        store);
    };
    if (present > 2 && cache.head_dim <= max_mma_dim) {
      if (cache.head_dim == 64) return attend(Count<64>{});
      if (cache.head_dim == 128) return attend(Count<128>{});
      if (cache.head_dim == 256) return attend(Count<256>{});
      if constexpr (max_mma_dim >= 512) {
        if (cache.head_dim == 512) return attend(Count<512>{});
      }
    }
  }
  constexpr uint32_t pair = 2;
  for (uint32_t done = 0; done < present; done += pair) {
    const auto store_pair = [=](uint32_t row, uint32_t d, float4 o, SliceSums sums) { store(done + row, d, o, sums); };
    const auto attend = [&](auto quads, auto rows) {
      attend_few<quads.value, rows.value, warps>(q + done * cache.head_dim, min(pair, present - done), cache, scale,
                                                 begin, end, shared, store_pair);
    };
    const bool one = present == 1;
    if (cache.head_dim <= 128) {
      one ? attend(Count<1>{}, Count<1>{}) : attend(Count<1>{}, Count<2>{});
    } else if (cache.head_dim <= 256) {
      one ? attend(Count<2>{}, Count<1>{}) : attend(Count<2>{}, Count<2>{});
    } else {
      one ? attend(Count<4>{}, Count<1>{}) : attend(Count<4>{}, Count<2>{});
    }
  }
}

}  // namespace zinc
