// Matrix-vector products of matrices so small that the chain of dependent steps takes longer than their bytes: in f32
// from registers, with little to prepare and few barriers.
//
// A thread has a piece of some columns of `rows` rows of each matrix, and those that lie as far on as the threads of its
// row group reach. A row group has a warp for every 32 pieces of a row, at most few_warps; a block has as many row
// groups as its warps make. Grid: x over the row groups' rows, block by block.
//
// A piece is a struct with
//   Format, columns                    how many columns
//   Place                              (matrix, piece of the row): where the piece lies in each row of a matrix
//   load(row, Place)                   of rows that lie few_alignment bytes apart or a multiple of that
//   staged                             whether the columns are not neighbours: then eight threads have 256 columns
//   four(piece of the row, i)          which four columns, counted from the row's start, are the i-th of the piece
//   Vector                             made of the piece's part of a vector, what all rows share
//   dot(Vector, Place)
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/dmmv_moe_down.cuh"

namespace zinc {

constexpr unsigned few_warps = 8;
constexpr unsigned few_alignment = 4;

// Whether m rows of k columns, at most `few` weights, are multiplied this way. Launch blocks say the same.
ZINC_DEVICE bool is_few(uint32_t m, uint32_t k, uint32_t few) {
  constexpr unsigned columns = 64;  // of which rows of all formats are a multiple of few_alignment bytes
  return k % columns == 0 && uint64_t{m} * k <= few;
}

// What is multiplied: the same matrices with the same vector in all threads, `k` columns a row.
template <unsigned matrices_>
struct FewMatrices {
  static constexpr unsigned matrices = matrices_;
  struct Term {
    const uint8_t* matrix[matrices];
    const float* x;  // from the first column of the matrices on
    uint32_t c;      // the columns before the thread's in them

    ZINC_DEVICE float weighted(float dot) const { return dot; }
  };

  const uint8_t* matrix[matrices];
  const float* x;
  uint32_t k;

  ZINC_DEVICE uint32_t columns() const { return k; }
  ZINC_DEVICE Term term(uint32_t c) const {
    Term term{{}, x, c};
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) term.matrix[i] = matrix[i];
    return term;
  }
};

// The weighted sum over slots of the products of their experts: as if rows of the experts lay side by side.
template <class Weights>
struct FewSlots {
  static constexpr unsigned matrices = 1;
  struct Term {
    const uint8_t* matrix[1];
    const float* x;
    uint32_t c;
    float weight;

    ZINC_DEVICE float weighted(float dot) const { return weight * dot; }
  };

  Experts<1> experts;
  const float* x;
  uint64_t x_stride;
  Weights router;
  uint32_t slots;
  uint32_t k;

  ZINC_DEVICE uint32_t columns() const { return slots * k; }
  ZINC_DEVICE Term term(uint32_t c) const {
    const uint32_t slot = c / k;
    return {{experts.matrix(0, router.routing[slot])}, x + slot * x_stride, c - slot * k, router.of(slot)};
  }
};

// A block has `groups` row groups of `rows` rows of each matrix.
template <class Piece_, unsigned rows_, unsigned groups_ = 1>
struct FewShape {
  using Piece = Piece_;
  static constexpr unsigned rows = rows_;
  static constexpr unsigned groups = groups_;
  static_assert((groups & (groups - 1)) == 0, "what is staged is dealt out evenly");
};

// Which rows the thread has, and which part of them.
template <class Shape>
struct FewPlace {
  unsigned warps;  // of a row group
  unsigned group;
  unsigned thread;  // of the row group
  uint32_t first;   // row

  explicit ZINC_DEVICE FewPlace(uint32_t columns) {
    constexpr unsigned warp_columns = warp_size * Shape::Piece::columns;
    warps = Shape::groups == 1
                ? block_warps()
                : min(max((columns + warp_columns - 1) / warp_columns, 1u), few_warps);
    group = 0;
#pragma unroll
    for (unsigned g = 1; g < Shape::groups; ++g) group += warp_id() >= g * warps ? 1 : 0;
    thread = threadIdx.x - group * threads();
    first = block_first() + group * Shape::rows;
  }

  ZINC_DEVICE unsigned threads() const { return warps * warp_size; }
  ZINC_DEVICE uint32_t block_first() const { return blockIdx.x * (Shape::groups * Shape::rows); }
};

// The bytes of a row, which are few enough for 32 bits.
template <class Shape>
ZINC_DEVICE uint32_t few_row_bytes(uint32_t k) {
  return static_cast<uint32_t>(row_bytes<typename Shape::Piece::Format>(k));
}

// Asks for the rows of the block. To be called before wait_for_previous().
template <class Shape>
ZINC_DEVICE void prefetch_few(const uint8_t* matrix, uint32_t m, uint32_t k, const FewPlace<Shape>& place) {
  constexpr uint64_t unit = 16;
  const uint64_t row_size = row_bytes<typename Shape::Piece::Format>(k);
  if (place.thread != 0 || place.first >= m) return;
  const uint64_t from = reinterpret_cast<uint64_t>(matrix + place.first * row_size) / unit * unit;
  const uint64_t to = reinterpret_cast<uint64_t>(matrix + min(place.first + Shape::rows, m) * row_size) / unit * unit;
  if (to > from) prefetch_l2(reinterpret_cast<const uint8_t*>(from), static_cast<uint32_t>(to - from));
}

// Eight threads exchange 256 columns of a vector by way of shared memory. The four columns q of these are the `position`th
// there, so that lanes neither write nor read the same bank at once.
struct StagedVector {
  static constexpr unsigned threads = 8;
  static constexpr unsigned columns = 256;
  static constexpr unsigned fours = columns / 4;
  static ZINC_DEVICE unsigned position(unsigned q) { return q ^ (q / 16 % 4); }
};

// Products of the terms' matrices with their vectors, summed over the terms, for the m rows that lie `row_size` bytes
// apart; see for_row_groups for finish. `shared` is for 4 * rows * matrices bytes a warp, and where pieces are staged
// for their columns of a vector, too.
template <class Shape, class Terms, class Finish>
ZINC_DEVICE void few_rows(float* shared, const FewPlace<Shape>& place, const Terms& terms, uint32_t m,
                          uint32_t row_size, Finish finish) {
  using Piece = typename Shape::Piece;
  constexpr unsigned rows = Shape::rows;
  constexpr unsigned groups = Shape::groups;
  constexpr unsigned matrices = Terms::matrices;
  constexpr unsigned sums = rows * matrices;
  constexpr unsigned fours = Piece::columns / 4;
  static_assert(warp_size % sums == 0 && Piece::columns % 4 == 0);
  const uint32_t columns = terms.columns();
  const uint32_t first = min(place.first, m - 1);
  const uint64_t first_at = uint64_t{first} * row_size;
  const uint32_t last = m - 1 - first;
  float sum[sums] = {};
  float4* const staged = reinterpret_cast<float4*>(shared);
  float* const partial = shared + (Piece::staged ? place.threads() * Piece::columns : 0);
#pragma unroll(Piece::staged ? 1 : 2)
  for (uint32_t base = 0; base < columns; base += Piece::columns * place.threads()) {
    const uint32_t c = base + Piece::columns * place.thread;
    if (!Piece::staged && c >= columns) break;
    // Threads past the end do as the first one does, and count for nothing.
    const bool here = c < columns;
    const auto term = terms.term(here ? c : 0);
    const typename Piece::Place at(term.matrix[0], term.c);
    float4* const own = staged + place.thread / StagedVector::threads * StagedVector::fours;
    const unsigned lane = place.thread % StagedVector::threads;
    float4 x[fours];
    if constexpr (Piece::staged) {
      if (base > 0) __syncthreads();
      const float* const from = term.x + term.c / StagedVector::columns * StagedVector::columns;
#pragma unroll
      for (unsigned i = 0; i < fours / groups; ++i) {
        const unsigned q = StagedVector::threads * (i * groups + place.group) + lane;
        x[i] = __ldg(reinterpret_cast<const float4*>(from) + q);
      }
    } else {
#pragma unroll
      for (unsigned i = 0; i < fours; ++i) x[i] = __ldg(reinterpret_cast<const float4*>(term.x + term.c) + i);
    }
    Piece piece[sums];
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      piece[i].load(term.matrix[i / rows] + first_at + min(i % rows, last) * row_size, at);
    }
    if constexpr (Piece::staged) {
#pragma unroll
      for (unsigned i = 0; i < fours / groups; ++i) {
        own[StagedVector::position(StagedVector::threads * (i * groups + place.group) + lane)] = x[i];
      }
      // What the vote says does not matter. It needs all that was loaded, so that no load is put off until products of
      // other rows are done.
      uint32_t words = 0;
#pragma unroll
      for (unsigned i = 0; i < sums; ++i) words ^= piece[i].some();
      __syncthreads_or(words == 0);
#pragma unroll
      for (unsigned i = 0; i < fours; ++i) x[i] = own[StagedVector::position(Piece::four(lane, i))];
    }
    const typename Piece::Vector vector(x);
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      const float dot = term.weighted(piece[i].dot(vector, at));
      sum[i] += here ? dot : 0.0f;
    }
  }
  const float part = warp_sums(sum);
  constexpr unsigned group = warp_size / sums;
  if (lane_id() % group == 0) partial[warp_id() * sums + lane_id() / group] = part;
  __syncthreads();
  if (threadIdx.x < groups * rows && place.block_first() + threadIdx.x < m) {
    const float* const own = partial + threadIdx.x / rows * place.warps * sums;
    float dots[matrices];
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
      dots[i] = 0.0f;
#pragma unroll
      for (unsigned w = 0; w < few_warps; ++w) {
        if (w < place.warps) dots[i] += own[w * sums + i * rows + threadIdx.x % rows];
      }
    }
    finish(place.block_first() + threadIdx.x, 0, dots);
  }
}

// One or more matrices times one vector, with what comes before.
template <class Shape, unsigned matrices, class Finish>
ZINC_DEVICE void matvec_few(const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k, const float* x,
                            Finish finish) {
  const FewPlace<Shape> place(k);
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) prefetch_few(matrix[i], m, k, place);
  wait_for_previous();
  ZINC_DYNAMIC_SHARED(float, shared);
  FewMatrices<matrices> terms{{}, x, k};
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) terms.matrix[i] = matrix[i];
  few_rows(shared, place, terms, m, few_row_bytes<Shape>(k), finish);
}

// A way through slots (dmmv_moe.cuh). Grid: y over slots, walked with the grid's stride.
template <class Shape>
struct FewExperts {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t slots, uint32_t m,
                              uint32_t k, Work work) {
    ZINC_DYNAMIC_SHARED(float, shared);
    const FewPlace<Shape> place(k);
    for (uint32_t slot = blockIdx.y; slot < slots; slot += gridDim.y) {
      if (slot != blockIdx.y) __syncthreads();  // what is in shared memory may still be read
      const auto here = work(slot);
      const uint32_t expert = routing[slot];
      FewMatrices<matrices> terms{{}, here.x, k};
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) terms.matrix[i] = experts.matrix(i, expert);
      few_rows(shared, place, terms, m, few_row_bytes<Shape>(k), here.finish);
    }
  }
};

// As dmmv_moe_down_tiles.
template <class Shape, class Weights, class Push>
ZINC_DEVICE void moe_down_few(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Weights& router, bool add,
                              const Push& p) {
  ZINC_DYNAMIC_SHARED(float, shared);
  const FewSlots<Weights> terms{
      {{weights}, p.expert_stride}, at_byte<float>(x, p.x_offset), p.x_expert_stride, router, p.n_used, p.k};
  const FewPlace<Shape> place(terms.columns());
  few_rows(shared, place, terms, p.m, few_row_bytes<Shape>(p.k),
           StoreRow{at_byte<float>(y, p.y_offset), 0, add});
}

}  // namespace zinc
