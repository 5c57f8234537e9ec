// Products of few rows with one vector by the tensor cores in binary16, straight from memory: a third of the
// instructions of dmmv_few.cuh, and no barrier before the sums are there.
//
// A block has 16 rows of each matrix; its warps deal out the steps of 256 columns of a row, of which a lane takes 64 of
// the rows lane / 4 and 8 more. See split_vector.cuh for the vector. Grid: x over blocks.
//
// What a lane has of a row is a struct, besides the order of columns as SplitStep wants it, with
//   Format
//   load(step of a row)             what a lane takes
//   halves(block i, word, odd)      numbers 0 and 2 of a word of its i-th block, or 1 and 3
//   weighted(dots, sums)            the sum over both blocks, of dot products of these numbers and sums of the vector
#pragma once

#include "zinc/dmmv_few.cuh"
#include "zinc/halves_sums.cuh"
#include "zinc/quant/staged_row.cuh"
#include "zinc/split_vector.cuh"

namespace zinc {

// Products of the terms' matrices with their vectors, summed over the terms, for the m rows that lie `row_size` bytes
// apart. ready(terms) is called once, before anything is read, and what it returns is ended before a vector is.
// `shared` is for a SplitStep for each warp.
template <class Weights, unsigned most_warps, class Terms, class Ready, class Finish>
ZINC_DEVICE void few_halves(uint8_t* shared, Terms terms, uint32_t m, uint32_t row_size, Ready ready, Finish finish) {
  using Format = typename Weights::Format;
  using Step = SplitStep<Weights>;
  constexpr unsigned matrices = Terms::matrices;
  constexpr unsigned step_bytes = step_columns / Format::block_columns * Format::block_bytes;
  const unsigned warps = block_warps();
  Step& vector = reinterpret_cast<Step*>(shared)[warp_id()];
  const HalvesSums<matrices> sums_of{reinterpret_cast<float*>(shared), sizeof(Step) / sizeof(float)};
  const uint32_t row = blockIdx.x * halves_rows + lane_id() / 4;
  const uint32_t at[2] = {min(row, m - 1) * row_size, min(row + 8, m - 1) * row_size};
  const uint32_t steps = terms.columns() / step_columns;
  uint32_t step = warp_id();
  auto place = terms.place(step < steps ? step * step_columns : 0);
  const auto early = ready(terms);
  auto term = terms.term(place);
  Weights weights[2 * matrices];
  const auto load = [&] {
#pragma unroll
    for (unsigned i = 0; i < 2 * matrices; ++i) {
      weights[i].load(term.matrix[i / 2] + (at[i % 2] + place.c / step_columns * step_bytes));
    }
  };
  if (step < steps) {
    load();
    keep_early<false>(weights, false);
  }
  early.end();
  float sum[2 * matrices] = {};
  bool unfit = false;
#pragma unroll 1
  while (step < steps) {
    const float4* const x = reinterpret_cast<const float4*>(term.x + place.c + Step::lane_columns * lane_id());
    const float4 x0 = __ldg(x);
    const float4 x1 = __ldg(x + 1);
    unfit = vector.put(x0, x1) || unfit;
    __syncwarp();
    float dots[2 * matrices][2];
    float sums[2];
    for_constants<2>([&](auto b) {
      constexpr unsigned i = b.index;
      uint32_t columns[Step::words][2];
      vector.load(columns, i);
      const unsigned block = Weights::block(lane_id() % 4, i);
      sums[i] = vector.sum[block];
#pragma unroll
      for (unsigned j = 0; j < matrices; ++j) {
        float dot[4] = {};
#pragma unroll
        for (unsigned w = 0; w < Step::words; ++w) {
          const uint32_t a[4] = {weights[2 * j].template halves<i>(w, 0), weights[2 * j + 1].template halves<i>(w, 0),
                                 weights[2 * j].template halves<i>(w, 1), weights[2 * j + 1].template halves<i>(w, 1)};
          mma_half(dot, a, columns[w]);
        }
        dots[2 * j][i] = (dot[0] + dot[1]) * vector.scale[block];
        dots[2 * j + 1][i] = (dot[2] + dot[3]) * vector.scale[block];
      }
    });
#pragma unroll
    for (unsigned i = 0; i < 2 * matrices; ++i) sum[i] += term.weighted(weights[i].weighted(dots[i], sums));
    step += warps;
    if (step >= steps) break;
    place = terms.place(step * step_columns);
    term = terms.term(place);
    load();
    __syncwarp();
  }
  // The warp is done with its part of the vector.
  __syncwarp();
  sums_of.put(0, sums_of.of_quad(sum));
  sums_of.template finish<Format, most_warps>(1, unfit, terms, m, row_size, finish);
}

// As FewExperts.
template <class Weights, unsigned most_warps>
struct FewExpertsHalves {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t, uint32_t m,
                              uint32_t k, Work work) {
    ZINC_DYNAMIC_SHARED(uint8_t, shared);
    const auto here = work(blockIdx.y);
    few_halves<Weights, most_warps>(shared, FewMatrices<matrices>{{}, here.x, k}, m,
                                    static_cast<uint32_t>(row_bytes<typename Weights::Format>(k)),
                                    SlotReady<matrices>{experts, routing}, here.finish);
  }
};

}  // namespace zinc
