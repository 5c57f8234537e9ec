// Products of small matrices with one vector, whose rows come to shared memory whole: asked for at once, and where they
// may be read early before the kernel before this one has ended. From compute capability 9.0 on.
//
// A block has up to four tiles of 16 rows; see copied_rows.cuh. A lane takes a quarter of a warp's 256 columns of rows
// lane / 4 and 8 more, as binary16 numbers, which are exact; see split_vector.cuh for the vector.
//
// What a lane has of a row's step of 256 columns is a struct `Copied`, besides the order of columns as SplitStep wants
// it and what copied_rows.cuh wants, with
//   Format
//   across                           whether the lanes of a quad deal out the blocks' words; see SplitStep
//   late                             whether rows of one chunk that are not asked for at first are when the vector has
//                                    come, and not just after it was asked for
//   sides                            1, or 2 where both halves of a block have sums of their own
//   keeps_columns                    whether the vector's numbers stay in registers from tile to tile
//   pitch                            such that reads of eight rows meet different banks
//   load(address of the step)        what the lane takes
//   halves<i>(word, odd)             numbers 0 and 2 of a word of the lane's i-th block, or 1 and 3; `across`, word
//                                    4 s + j is that of half s of the i-th block of part j
//   weighted(dots, columns)          the sum over the lane's blocks, of dot products of these numbers: dots[i][s] of
//                                    words 4 s .. 4 s + 3, or dots[i][0] of all; columns.scale[i] and sum[i] are those
//                                    of the vector
#pragma once

#include "zinc/copied_rows.cuh"
#include "zinc/dmmv_few.cuh"
#include "zinc/halves_sums.cuh"
#include "zinc/quant/staged_row.cuh"
#include "zinc/shared_address.cuh"
#include "zinc/split_vector.cuh"

namespace zinc {

// The columns of a chunk that a warp multiplies.
template <class Copied>
struct CopiedWeights {
  using Lane = SplitLane<Copied, Copied::across>;
  using Step = typename Lane::Step;

  Copied rows[2];

  ZINC_DEVICE void load(SharedAddress lane_row) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) rows[h].load(lane_row + h * 8 * Copied::pitch);
  }

  // The operands that a lane has of a step of the vector.
  struct Columns {
    uint32_t words[2][Step::words][2];
    float scale[2];
    float sum[2];

    ZINC_DEVICE void load(const Step& step) {
      const Lane lane(reinterpret_cast<const uint8_t*>(&step));
      const unsigned part = lane_id() % 4;
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        lane.load(words[i], i);
        scale[i] = step.scale[Copied::block(part, i)];
        if constexpr (Copied::has_minimum) sum[i] = step.sum[Copied::block(part, i)];
      }
    }
  };

  template <class Weigh>
  ZINC_DEVICE void add_to(float (&sum)[2], const Columns& columns, Weigh weigh) const {
    constexpr unsigned sides = Copied::sides;
    float dots[2][2][sides];  // [row][block][half]
    for_constants<2>([&](auto block) {
      constexpr unsigned i = decltype(block)::index;
      float dot[sides][4] = {};
#pragma unroll
      for (unsigned n = 0; n < Step::words; ++n) {
        const unsigned w = n % 2 * 4 + n / 2;
        const uint32_t a[4] = {rows[0].template halves<i>(w, 0), rows[1].template halves<i>(w, 0),
                               rows[0].template halves<i>(w, 1), rows[1].template halves<i>(w, 1)};
        mma_half(dot[n % sides], a, columns.words[i][w]);
      }
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
        for (unsigned s = 0; s < sides; ++s) dots[h][i][s] = dot[s][2 * h] + dot[s][2 * h + 1];
      }
    });
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) sum[h] += weigh(rows[h].weighted(dots[h], columns));
  }
};

// Rows of one chunk of columns, or of `two`.
template <class Copied, bool two, unsigned most_rows, class Terms, class Ready, class Finish>
ZINC_DEVICE void copied_chunks(Terms terms, uint32_t m, Ready ready, Finish finish, const BlockOfMany& share = {}) {
  using Work = CopiedWork<Copied, Terms, Known<two>, most_rows>;
  using Weights = CopiedWeights<Copied>;
  using Step = typename Weights::Step;
  constexpr unsigned chunks = two ? 2 : 1;
  static_assert(Work::tile_rows == halves_rows);
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  const uint32_t steps = terms.columns() / step_columns;
  Step* const vector = reinterpret_cast<Step*>(shared);
  const unsigned warp = warp_id();
  const auto reads = ready(terms);
  const auto place_of = [&](unsigned chunk) {
    return terms.place(min(chunk * copied_warps + warp, steps - 1) * step_columns);
  };
  const typename Terms::Term term[2] = {terms.term(place_of(0)), terms.term(place_of(chunks - 1))};
  const Work work(terms, m, shared + steps * sizeof(Step), {}, share);
  work.begin();
  const SharedAddress lane_rows = SharedAddress(work.rows) + (lane_id() / 4 * Work::pitch + warp * Copied::step_bytes);
  const uint32_t count = work.count();
  Weights weights;
  // Takes a chunk to registers, whose room is free then. The last chunk of a row is not for all warps.
  const auto take = [&](uint32_t number) {
    work.wait(number);
    if (!two || work.chunk(number) * copied_warps + warp < steps) weights.load(lane_rows + work.place(number));
    work.free(number);
  };
  reads.end();
  float4 columns[chunks][2];
#pragma unroll
  for (unsigned i = 0; i < chunks; ++i) {
    const float4* const from = reinterpret_cast<const float4*>(term[i].x + place_of(i).c) + 2 * lane_id();
    columns[i][0] = __ldg(from);
    columns[i][1] = __ldg(from + 1);
  }
  constexpr bool late = !two && Copied::late;
  if (!late) work.ask_rest();
  take(0);
  bool unfit = false;
#pragma unroll 1
  for (unsigned i = 0; i < chunks; ++i) {
    const uint32_t step = i * copied_warps + warp;
    if (two && step >= steps) break;
    unfit = vector[step].put(columns[0][0], columns[0][1], step) || unfit;
    columns[0][0] = columns[chunks - 1][0];
    columns[0][1] = columns[chunks - 1][1];
  }
  if (late) work.ask_rest();
  __syncwarp();
  // The memory of a warp's part of the vector is for sums when it is not needed any more.
  const HalvesSums<Terms::matrices> all{reinterpret_cast<float*>(shared), sizeof(Step) / sizeof(float), share.block,
                                        share.blocks};
  const HalvesSums<1> each{all.memory, all.stride, share.block, share.blocks};
  constexpr bool keeps = !two && Copied::keeps_columns;
  [[maybe_unused]] float sums[Work::most_tiles] = {};
  float sum[2] = {};
  typename Weights::Columns own;
  if constexpr (keeps) {
    own.load(vector[warp]);
    __syncwarp();
  }
#pragma unroll 1
  for (uint32_t number = 0; number < count; ++number) {
    const uint32_t step = work.chunk(number) * copied_warps + warp;
    if (!two || step < steps) {
      if (!keeps) own.load(vector[step]);
      weights.add_to(sum, own, [&](float dot) {
        const float weighted[] = {term[0].weighted(dot), term[1].weighted(dot)};
        return work.chunk(number) == 0 ? weighted[0] : weighted[1];
      });
    }
    if (work.ends(number)) {
      const float of_quad = HalvesSums<1>::of_quad(sum);
      if constexpr (keeps) {
        each.put(work.tile(number), of_quad);
      } else {
#pragma unroll
        for (unsigned i = 0; i < Work::most_tiles; ++i) sums[i] = work.tile(number) == i ? of_quad : sums[i];
      }
      sum[0] = 0.0f;
      sum[1] = 0.0f;
    }
    if (number + 1 < count) take(number + 1);
  }
  if constexpr (!keeps) {
    // The warp is done with its part of the vector.
    __syncwarp();
#pragma unroll
    for (unsigned i = 0; i < Work::most_tiles; ++i) each.put(i, sums[i]);
  }
  all.template finish<typename Copied::Format, copied_warps>(work.row_tiles, unfit, terms, m, Work::bytes(terms.k),
                                                             finish);
}

// Products of the terms' matrices with their vectors, summed over the terms, as finish(row, 0, dots) makes them.
// ready(terms) is called once, before anything is read, and what it returns is ended before a vector is.
template <class Copied, unsigned most_rows = copied_rows, class Terms, class Ready, class Finish>
ZINC_DEVICE void copied_terms(const Terms& terms, uint32_t m, Ready ready, Finish finish,
                              const BlockOfMany& share = {}) {
  if (terms.columns() > copied_warps * step_columns) {
    copied_chunks<Copied, true, most_rows>(terms, m, ready, finish, share);
  } else {
    copied_chunks<Copied, false, most_rows>(terms, m, ready, finish, share);
  }
}

// y as finish(row, 0, dots) makes it.
template <class Copied, unsigned most_rows = copied_rows, class Finish>
ZINC_DEVICE void matvec_copied(const uint8_t* matrix, uint32_t m, uint32_t k, const float* x, Finish finish,
                               const BlockOfMany& share = {}) {
  copied_terms<Copied, most_rows>(
      FewMatrices<1>{{matrix}, x, k}, m, [](FewMatrices<1>&) { return EarlyReads(); }, finish, share);
}

// As FewExperts, of one chunk of columns.
template <class Copied, unsigned most_rows = copied_rows>
struct CopiedExperts {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t, uint32_t m,
                              uint32_t k, Work work) {
    const auto here = work(blockIdx.y);
    copied_chunks<Copied, false, most_rows>(FewMatrices<matrices>{{}, here.x, k}, m,
                                            SlotReady<matrices>{experts, routing}, here.finish);
  }
};

// As moe_down_few.
template <class Copied, class Weights, class Push>
ZINC_DEVICE void moe_down_copied(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Weights& router, bool add,
                                 const Push& p) {
  const FewSlots<Weights> terms{
      {{weights}, p.expert_stride}, at_byte<float>(x, p.x_offset), p.x_expert_stride, router, p.n_used, p.k};
  copied_terms<Copied>(
      terms, p.m, [](const FewSlots<Weights>&) { return EarlyReads(); },
      StoreRow{at_byte<float>(y, p.y_offset), 0, add});
}

// The plain contract: y[r] = dot, or y[r] += dot where acc_mode is not 0.
template <class Copied, class Push>
ZINC_DEVICE void dmmv_copied(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  matvec_copied<Copied>(weights + p.a_offset, p.m, p.k, at_byte<float>(x, p.x_offset),
                        StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

// Two matrices of m0 and m1 rows of k columns with the same vector: blocks have tiles of one of them, the fewest for
// which the grid has enough blocks. False where that is more than `most_rows` rows: then nothing is done.
template <class Copied, unsigned most_rows, class Push>
ZINC_DEVICE bool dmmv_copied_pair(const uint8_t* weights0, const uint8_t* weights1, const uint8_t* x, uint8_t* y0,
                                  uint8_t* y1, const Push& p) {
  uint32_t first = 0;
  bool fits = false;
#pragma unroll
  for (uint32_t rows = halves_rows; rows <= most_rows; rows += halves_rows) {
    const uint32_t blocks0 = (p.m0 + rows - 1) / rows;
    const uint32_t blocks1 = (p.m1 + rows - 1) / rows;
    if (!fits && blocks0 + blocks1 <= gridDim.x) {
      fits = true;
      first = blocks0;
    }
  }
  if (!fits) return false;
  const bool second = blockIdx.x >= first;
  matvec_copied<Copied, most_rows>(
      second ? weights1 + p.a1_offset : weights0 + p.a0_offset, second ? p.m1 : p.m0, p.k,
      at_byte<float>(x, p.x_offset),
      StoreRow{second ? at_byte<float>(y1, p.y1_offset) : at_byte<float>(y0, p.y0_offset), 0, false},
      BlockOfMany{second ? blockIdx.x - first : blockIdx.x, second ? gridDim.x - first : first});
  return true;
}

}  // namespace zinc
