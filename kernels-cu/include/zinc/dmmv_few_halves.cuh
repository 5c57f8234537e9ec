<<<<<<< HEAD
// Products of few rows with one vector by the tensor cores in binary16: a third of the instructions of
// dmmv_few.cuh, and no barrier before the sums are there.
=======
// Products of few rows with one vector by the tensor cores in binary16, straight from memory: a third of the
// instructions of dmmv_few.cuh, and no barrier before the sums are there.
>>>>>>> mv
//
// A block has 16 rows of each matrix; its warps deal out the steps of 256 columns of a row, of which a lane takes 64 of
// the rows lane / 4 and 8 more. See split_vector.cuh for the vector. Grid: x over blocks.
//
// What a lane has of a row is a struct, besides the order of columns as SplitStep wants it, with
//   Format
<<<<<<< HEAD
//   load(step of a row)             what a lane takes of its copy in shared memory
=======
//   load(step of a row)             what a lane takes
>>>>>>> mv
//   halves(block i, word, odd)      numbers 0 and 2 of a word of its i-th block, or 1 and 3
//   weighted(dots, sums)            the sum over both blocks, of dot products of these numbers and sums of the vector
#pragma once

#include "zinc/dmmv_few.cuh"
<<<<<<< HEAD
#include "zinc/quant/run.cuh"
#include "zinc/quant/staged_row.cuh"
#include "zinc/shared_address.cuh"
=======
#include "zinc/halves_sums.cuh"
#include "zinc/quant/staged_row.cuh"
>>>>>>> mv
#include "zinc/split_vector.cuh"

namespace zinc {

<<<<<<< HEAD
constexpr unsigned halves_rows = 16;  // of a block

// Sums of the rows that a block has: tiles of 16 rows, a grid apart, of each matrix. Each warp has sums over its columns
// in memory of its own, `stride` floats from the one before: number i * 16 + r of a tile's is row r of matrix i.
template <unsigned matrices>
struct HalvesSums {
  static constexpr unsigned all_rows = matrices * halves_rows;

  float* memory;
  uint32_t stride;

  static ZINC_DEVICE uint32_t first_row(uint32_t tile) { return (blockIdx.x + tile * gridDim.x) * halves_rows; }

  // A quad's lanes have sums of the rows lane / 4 and 8 more of each matrix.
  static ZINC_DEVICE float of_quad(const float (&sum)[2 * matrices]) { return warp_sums<4>(sum); }
  ZINC_DEVICE void put(uint32_t tile, float of_quad) const {
    constexpr unsigned share = 4 / (2 * matrices);
    const unsigned lane = lane_id();
    if (lane % share == 0) memory[warp_id() * stride + tile * all_rows + lane % 4 / share * 8 + lane / 4] = of_quad;
  }

  // Computes them anew in f32, for vectors that binary16 cannot represent, as sums of one warp.
  template <class Format, class Terms>
  ZINC_DEVICE void put_floats(uint32_t tile, const Terms& terms, uint32_t m, uint32_t row_size) const {
    const uint32_t first = first_row(tile);
#pragma unroll 1
    for (uint32_t r = warp_id(); r < min(halves_rows, m - first); r += block_warps()) {
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) {
        float sum = 0.0f;
#pragma unroll 1
        for (uint32_t c = run_columns * lane_id(); c < terms.columns(); c += run_columns * warp_size) {
          const auto place = terms.place(c);
          const auto term = terms.term(place);
          const uint8_t* const row = term.matrix[i] + uint64_t{first + r} * row_size;
          const auto run = load_run<false, Format>(row, place.c / run_columns);
          float dot = 0.0f;
#pragma unroll
          for (unsigned j = 0; j < run_columns; ++j) {
            dot = fmaf(run.weight(j / 4, j % 4), __ldg(term.x + place.c + j), dot);
          }
          sum += term.weighted(dot);
        }
        sum = warp_sum(sum);
        if (lane_id() == 0) memory[tile * all_rows + i * halves_rows + r] = sum;
      }
    }
  }

  // Adds up what the warps have, and finishes the rows. All threads of the
  // block call it; the warps are done with their memory.
  template <class Format, unsigned most_warps, class Terms, class Finish>
  ZINC_DEVICE void finish(uint32_t tiles, bool unfit, const Terms& terms, uint32_t m, uint32_t row_size,
                          Finish finish) const {
    unsigned parts = block_warps();
    if (__syncthreads_or(unfit) != 0) {
#pragma unroll 1
      for (uint32_t tile = 0; tile < tiles; ++tile) put_floats<Format>(tile, terms, m, row_size);
      parts = 1;
      __syncthreads();
    }
    for (uint32_t at = threadIdx.x; at < tiles * halves_rows; at += blockDim.x) {
      const uint32_t tile = at / halves_rows;
      const uint32_t row = first_row(tile) + at % halves_rows;
      if (row >= m) return;
      const float* const own = memory + tile * all_rows + at % halves_rows;
      float dots[matrices];
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) {
        dots[i] = 0.0f;
#pragma unroll
        for (unsigned w = 0; w < most_warps; ++w) {
          if (w < parts) dots[i] += own[w * stride + i * halves_rows];
        }
      }
      finish(row, 0, dots);
    }
  }
};

// Whether the thread finishes a row of m where the block has one tile.
ZINC_DEVICE bool finishes_row(uint32_t m) {
  return threadIdx.x < halves_rows && blockIdx.x * halves_rows + threadIdx.x < m;
}

// A step of a warp: of the vector, and the 16 rows of each matrix as they lie in memory.
template <class Weights, unsigned matrices>
struct HalvesStep {
  using Format = typename Weights::Format;
  static constexpr unsigned row_bytes = step_columns / Format::block_columns * Format::block_bytes;
  static constexpr unsigned copy_bytes = 16;
  static constexpr unsigned row_copies = row_bytes / copy_bytes;
  static constexpr unsigned copies = halves_rows * row_copies;  // of a matrix
  static constexpr unsigned lane_copies = (matrices * copies + warp_size - 1) / warp_size;
  static_assert(row_bytes % copy_bytes == 0);

  SplitStep<Weights> vector;
  uint8_t rows[matrices][halves_rows * row_bytes];

  // Where the lane's copies begin, from the first row of a matrix on.
  struct Places {
    uint32_t at[lane_copies];

    ZINC_DEVICE Places(uint32_t m, uint32_t row_size) {
#pragma unroll
      for (unsigned i = 0; i < lane_copies; ++i) {
        const unsigned copy = (lane_id() + i * warp_size) % copies;
        const uint32_t row = min(blockIdx.x * halves_rows + copy / row_copies, m - 1);
        at[i] = row * row_size + copy % row_copies * copy_bytes;
      }
    }
  };

  // Starts the lane's copies of the step that begins `offset` bytes into a row.
  ZINC_DEVICE void copy(const uint8_t* const (&matrix)[matrices], const Places& places, uint32_t offset) {
    const SharedPlace to = shared_place(rows);
#pragma unroll
    for (unsigned i = 0; i < lane_copies; ++i) {
      const unsigned number = lane_id() + i * warp_size;
      if ((i + 1) * warp_size > matrices * copies && number >= matrices * copies) break;
      const uint8_t* from = matrix[0];
      if constexpr (matrices > 1) from = number < copies ? matrix[0] : matrix[1];
      async_copy_passing<false>(to + number * copy_bytes, from + (places.at[i] + offset));
    }
  }
};

// Products of the terms' matrices with their vectors, summed over the terms, for the m rows that lie `row_size` bytes
// apart. ready(terms) is called once, before anything is read. Each warp brings `depth` steps at a time; `shared` is for
// these.
template <class Weights, unsigned most_warps, unsigned depth, class Terms, class Ready, class Finish>
ZINC_DEVICE void few_halves(uint8_t* shared, Terms terms, uint32_t m, uint32_t row_size, Ready ready, Finish finish) {
  using Format = typename Weights::Format;
  constexpr unsigned matrices = Terms::matrices;
  using Vector = SplitStep<Weights>;
  using Step = HalvesStep<Weights, matrices>;
  static_assert(matrices <= 2);
  const unsigned warps = block_warps();
  Step* const own = reinterpret_cast<Step*>(shared) + warp_id() * depth;
  const typename Step::Places places(m, row_size);
  const uint32_t steps = terms.columns() / step_columns;
  const auto place_of = [&](uint32_t step) { return terms.place(step < steps ? step * step_columns : 0); };
  uint32_t first = warp_id();
  typename Terms::Place place[depth];
#pragma unroll
  for (unsigned d = 0; d < depth; ++d) place[d] = place_of(first + d * warps);
=======
// Products of the terms' matrices with their vectors, summed over the terms, for the m rows that lie `row_size` bytes
// apart. ready(terms) is called once, before anything is read. `shared` is for a SplitStep for each warp.
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
>>>>>>> mv
  ready(terms);
  float sum[2 * matrices] = {};
  bool unfit = false;
#pragma unroll 1
<<<<<<< HEAD
  while (first < steps) {
    typename Terms::Term term[depth];
#pragma unroll
    for (unsigned d = 0; d < depth; ++d) {
      if (first + d * warps < steps) {
        term[d] = terms.term(place[d]);
        own[d].copy(term[d].matrix, places, place[d].c / step_columns * Step::row_bytes);
      }
      async_commit();
    }
#pragma unroll
    for (unsigned d = 0; d < depth; ++d) {
      if (first + d * warps >= steps) break;
      const float4* const x = reinterpret_cast<const float4*>(term[d].x + place[d].c) + 2 * lane_id();
      unfit = own[d].vector.put(__ldg(x), __ldg(x + 1)) || unfit;
    }
    for_constants<depth>([&](auto at) {
      constexpr unsigned d = at.index;
      async_wait<depth - 1 - d>();
      __syncwarp();
      if (first + d * warps >= steps) return;
      const Vector& vector = own[d].vector;
      Weights weights[2 * matrices];
#pragma unroll
      for (unsigned i = 0; i < 2 * matrices; ++i) {
        weights[i].load(SharedAddress(own[d].rows[i / 2], false) + (lane_id() / 4 + i % 2 * 8) * Step::row_bytes);
      }
      float dots[2 * matrices][2];
      float sums[2];
      for_constants<2>([&](auto b) {
        constexpr unsigned i = b.index;
        uint32_t columns[Vector::words][2];
        vector.load(columns, i);
        const unsigned block = Weights::block(lane_id() % 4, i);
        sums[i] = vector.sum[block];
#pragma unroll
        for (unsigned j = 0; j < matrices; ++j) {
          float dot[4] = {};
#pragma unroll
          for (unsigned w = 0; w < Vector::words; ++w) {
            const uint32_t a[4] = {
                weights[2 * j].template halves<i>(w, 0), weights[2 * j + 1].template halves<i>(w, 0),
                weights[2 * j].template halves<i>(w, 1), weights[2 * j + 1].template halves<i>(w, 1)};
            mma_half(dot, a, columns[w]);
          }
          dots[2 * j][i] = (dot[0] + dot[1]) * vector.scale[block];
          dots[2 * j + 1][i] = (dot[2] + dot[3]) * vector.scale[block];
        }
      });
#pragma unroll
      for (unsigned i = 0; i < 2 * matrices; ++i) sum[i] += term[d].weighted(weights[i].weighted(dots[i], sums));
    });
    first += warps * depth;
    if (first >= steps) break;
#pragma unroll
    for (unsigned d = 0; d < depth; ++d) place[d] = place_of(first + d * warps);
    __syncwarp();
  }
  // The warp is done with its steps.
  __syncwarp();
  const HalvesSums<matrices> all{reinterpret_cast<float*>(shared), depth * sizeof(Step) / sizeof(float)};
  all.put(0, all.of_quad(sum));
  all.template finish<Format, most_warps>(1, unfit, terms, m, row_size, finish);
}

// As FewExperts.
template <class Weights, unsigned most_warps, unsigned depth>
=======
  while (step < steps) {
    const auto term = terms.term(place);
    const float4* const x = reinterpret_cast<const float4*>(term.x + place.c + Step::lane_columns * lane_id());
    const float4 x0 = __ldg(x);
    const float4 x1 = __ldg(x + 1);
    Weights weights[2 * matrices];
#pragma unroll
    for (unsigned i = 0; i < 2 * matrices; ++i) {
      weights[i].load(term.matrix[i / 2] + (at[i % 2] + place.c / step_columns * step_bytes));
    }
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
    __syncwarp();
  }
  // The warp is done with its part of the vector.
  __syncwarp();
  sums_of.put(0, sums_of.of_quad(sum));
  sums_of.template finish<Format, most_warps>(1, unfit, terms, m, row_size, finish);
}

// As FewExperts.
template <class Weights, unsigned most_warps>
>>>>>>> mv
struct FewExpertsHalves {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t, uint32_t m,
                              uint32_t k, Work work) {
    ZINC_DYNAMIC_SHARED(uint8_t, shared);
    const auto here = work(blockIdx.y);
<<<<<<< HEAD
    few_halves<Weights, most_warps, depth>(
        shared, FewMatrices<matrices>{{}, here.x, k}, m,
        static_cast<uint32_t>(row_bytes<typename Weights::Format>(k)),
=======
    few_halves<Weights, most_warps>(
        shared, FewMatrices<matrices>{{}, here.x, k}, m, static_cast<uint32_t>(row_bytes<typename Weights::Format>(k)),
>>>>>>> mv
        [&](FewMatrices<matrices>& terms) {
          wait_for_previous();
          const uint32_t expert = routing[blockIdx.y];
#pragma unroll
          for (unsigned i = 0; i < matrices; ++i) terms.matrix[i] = experts.matrix(i, expert);
        },
        here.finish);
  }
};

<<<<<<< HEAD
// As moe_down_few.
template <class Piece, unsigned most_warps, unsigned depth, class Weights, class Push>
ZINC_DEVICE void moe_down_halves(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Weights& router, bool add,
                                 const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  const FewSlots<Weights> terms{
      {{weights}, p.expert_stride}, at_byte<float>(x, p.x_offset), p.x_expert_stride, router, p.n_used, p.k};
  StoreExpected store{{at_byte<float>(y, p.y_offset), 0, add}};
  few_halves<Piece, most_warps, depth>(
      shared, terms, p.m, static_cast<uint32_t>(row_bytes<typename Piece::Format>(p.k)),
      [&](const FewSlots<Weights>&) {
        wait_for_previous();
        if (finishes_row(p.m)) store.expect(blockIdx.x * halves_rows + threadIdx.x);
      },
      [&](uint32_t r, unsigned v, const float (&dots)[1]) { store(r, v, dots); });
}

=======
>>>>>>> mv
}  // namespace zinc
