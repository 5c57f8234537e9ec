// Matrix-vector products of matrices so small that the chain of dependent steps takes longer than their bytes: in f32
// from registers, with little to prepare and few barriers.
//
// A thread has a piece of some columns of `rows` rows of each matrix. A block has one row group, whose threads have the
// pieces that lie as far on as they reach, too; or where pieces are staged as many row groups as it has room for, which
// are half a warp for every 16 pieces of a row. Grid: x over the rows of blocks.
//
// A piece is a struct with
//   Format, columns                    how many columns
//   Place                              (first column): where the piece lies in a row; in(matrix), in those of a matrix
//   load(row, Place)                   of rows that lie few_alignment bytes apart or a multiple of that
//   Vector                             (fours of columns of a vector): what all rows share
//   dot(Vector, place in a matrix)
//   staged                             whether its columns are not neighbours, but eight threads have 256. Then also
//   four(thread of the eight, i)       which four of the 256 columns are the i-th of its
//   position(q)                        where these are in shared memory, so that lanes meet no bank at once
//   some()                             a word that needs everything that was loaded
//   put_off                            whether the assembler puts off its loads; see keep_early
#pragma once

#include "zinc/async_copy.cuh"
#include "zinc/dmmv_moe_down.cuh"
#include "zinc/early.cuh"

namespace zinc {

constexpr unsigned few_threads = 256;  // of a block, at most
constexpr unsigned few_alignment = 4;

// Whether m rows of k columns, at most `few` weights, are multiplied this way, where pieces are not staged. Launch
// blocks say the same.
ZINC_DEVICE bool is_few(uint32_t m, uint32_t k, uint32_t few) {
  constexpr unsigned columns = 64;  // of which rows of all formats are a multiple of few_alignment bytes
  return k % columns == 0 && uint64_t{m} * k <= few;
}

// The same where pieces are staged: whether `sets` such matrices are, whose rows or vectors are `misfit` bytes from
// where wide loads need them. A row group has at most staged_columns columns.
constexpr unsigned staged_columns = 8192;
ZINC_DEVICE bool is_few_staged(uint32_t sets, uint32_t m, uint32_t k, uint32_t columns, uint32_t misfit, uint32_t few) {
  constexpr uint32_t least = 256;  // so that there are not too many sets
  return misfit == 0 && columns <= staged_columns && uint64_t{sets} * m * max(k, least) <= few;
}

// What is multiplied: the same matrices with the same vector in all threads, `k` columns a row.
template <unsigned matrices_>
struct FewMatrices {
  static constexpr unsigned matrices = matrices_;
  struct Place {
    uint32_t c;  // columns before the thread's
  };
  struct Term {
    const uint8_t* matrix[matrices];
    const float* x;

    ZINC_DEVICE float weighted(float dot) const { return dot; }
  };

  const uint8_t* matrix[matrices];
  const float* x;
  uint32_t k;

  ZINC_DEVICE uint32_t columns() const { return k; }
  ZINC_DEVICE Place place(uint32_t c) const { return {c}; }
  ZINC_DEVICE Term term(const Place&) const {
    Term term{{}, x};
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) term.matrix[i] = matrix[i];
    return term;
  }

  // Of the columns from .. to - 1, those whose bytes lie together in a row: begin .. end - 1, from column `place` of
  // the row on; and where the first row of the i-th matrix lies.
  struct Part {
    ZINC_DEVICE bool exists() const { return lane_id() == 0; }
    ZINC_DEVICE uint32_t begin(uint32_t from) const { return from; }
    ZINC_DEVICE uint32_t end(uint32_t to) const { return to; }
    ZINC_DEVICE uint32_t place(uint32_t from) const { return from; }
    ZINC_DEVICE const uint8_t* matrix(const FewMatrices& terms, unsigned i) const {
      uint64_t at = reinterpret_cast<uint64_t>(terms.matrix[0]);
#pragma unroll
      for (unsigned j = 1; j < matrices; ++j) at = i == j ? reinterpret_cast<uint64_t>(terms.matrix[j]) : at;
      return reinterpret_cast<const uint8_t*>(at);
    }
  };
  // How many parts some columns are, and that of the lane, if it exists.
  ZINC_DEVICE uint32_t parts(uint32_t, uint32_t) const { return 1; }
  ZINC_DEVICE Part part(uint32_t, uint32_t) const { return {}; }
};

// The weighted sum over slots of the products of their experts: as if rows of the experts lay side by side.
template <class Weights>
struct FewSlots {
  static constexpr unsigned matrices = 1;
  struct Place {
    uint32_t c;
    uint32_t slot;
  };
  struct Term {
    const uint8_t* matrix[1];
    const float* x;
    typename Weights::Weight weight;

    ZINC_DEVICE float weighted(float dot) const { return weight * dot; }
  };

  Experts<1> experts;
  const float* x;
  uint64_t x_stride;
  Weights router;
  uint32_t slots;
  uint32_t k;

  ZINC_DEVICE uint32_t columns() const { return slots * k; }
  ZINC_DEVICE Place place(uint32_t c) const {
    const uint32_t slot = slot_of(c);
    return {c - slot * k, slot};
  }
  ZINC_DEVICE Term term(const Place& place) const {
    return {{experts.matrix(0, router.routing[place.slot])}, x + place.slot * x_stride, router.of(place.slot)};
  }

  struct Part {
    uint32_t first;
    uint32_t last;
    uint32_t c;
    const uint8_t* expert;

    ZINC_DEVICE bool exists() const { return first < last; }
    ZINC_DEVICE uint32_t begin(uint32_t) const { return first; }
    ZINC_DEVICE uint32_t end(uint32_t) const { return last; }
    ZINC_DEVICE uint32_t place(uint32_t) const { return c; }
    ZINC_DEVICE const uint8_t* matrix(const FewSlots&, unsigned) const { return expert; }
  };
  ZINC_DEVICE uint32_t parts(uint32_t from, uint32_t to) const { return slot_of(to - 1) - slot_of(from) + 1; }
  ZINC_DEVICE Part part(uint32_t from, uint32_t to) const {
    const uint32_t slot = min(slot_of(from) + lane_id(), slots - 1);
    const uint32_t c = slot * k;
    const uint32_t first = max(from, c);
    const bool exists = slot_of(from) + lane_id() == slot && first < to;
    return {first, exists ? min(to, c + k) : first, first - c, experts.matrix(0, router.routing[slot])};
  }

 private:
  // An integer division takes 100 clocks. Columns are so few that this is exact.
  ZINC_DEVICE uint32_t slot_of(uint32_t c) const {
    return k > 0 ? static_cast<uint32_t>(__fdividef(static_cast<float>(c) + 0.5f, static_cast<float>(k))) : 0;
  }
};

template <class Piece_, unsigned rows_>
struct FewShape {
  using Piece = Piece_;
  static constexpr unsigned rows = rows_;
  // Whose sums are added up first.
  static constexpr unsigned lanes = Piece::staged ? warp_size / 2 : warp_size;
};

// Which rows the thread has, and which part of them.
template <class Shape>
struct FewPlace {
  unsigned threads;  // of a row group
  unsigned groups;
  unsigned group;
  unsigned thread;  // of the row group

  explicit ZINC_DEVICE FewPlace(uint32_t columns) {
    threads = blockDim.x;
    groups = 1;
    group = 0;
    if constexpr (Shape::Piece::staged) {
      constexpr unsigned unit_columns = Shape::lanes * Shape::Piece::columns;
      const unsigned units = blockDim.x / Shape::lanes;
      const unsigned own = min(max((columns + unit_columns - 1) / unit_columns, 1u), units);
      threads = own * Shape::lanes;
      groups = units / own;
      group = threadIdx.x / Shape::lanes / own;
    }
    thread = threadIdx.x - group * threads;
  }

  // Threads that do not make a whole row group have no rows.
  ZINC_DEVICE bool idle() const { return group >= groups; }
  ZINC_DEVICE uint32_t block_first() const { return blockIdx.x * groups * Shape::rows; }
  ZINC_DEVICE uint32_t first() const { return block_first() + group * Shape::rows; }
  // Whether the thread finishes a row of m, and which.
  ZINC_DEVICE bool finishes(uint32_t m) const { return threadIdx.x < groups * Shape::rows && finished() < m; }
  ZINC_DEVICE uint32_t finished() const { return block_first() + threadIdx.x; }
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
  const uint32_t first = place.first();
  if (place.thread != 0 || place.idle() || first >= m) return;
  const uint64_t from = reinterpret_cast<uint64_t>(matrix + first * row_size) / unit * unit;
  const uint64_t to = reinterpret_cast<uint64_t>(matrix + min(first + Shape::rows, m) * row_size) / unit * unit;
  if (to > from) prefetch_l2(reinterpret_cast<const uint8_t*>(from), static_cast<uint32_t>(to - from));
}

// Eight threads bring 256 columns of a vector and exchange them by way of shared memory.
struct StagedVector {
  static constexpr unsigned threads = 8;
  static constexpr unsigned columns = 256;
  static constexpr unsigned fours = columns / 4;
};

// Products of the terms' matrices with their vectors, summed over the terms, for the m rows that lie `row_size` bytes
// apart; see for_row_groups for finish. `shared` is for 4 * rows * matrices bytes for all Shape::lanes threads, and
// where pieces are staged for their columns, too: a thread has one then. ready(terms) is called once, before anything
// is read: there is only arithmetic before it. What it returns is ended before a vector is read.
template <class Shape, class Terms, class Ready, class Finish>
ZINC_DEVICE void few_rows(float* shared, const FewPlace<Shape>& place, Terms terms, uint32_t m, uint32_t row_size,
                          Ready ready, Finish finish) {
  using Piece = typename Shape::Piece;
  constexpr unsigned rows = Shape::rows;
  constexpr unsigned matrices = Terms::matrices;
  constexpr unsigned sums = rows * matrices;
  constexpr unsigned fours = Piece::columns / 4;
  static_assert(Shape::lanes % sums == 0 && Piece::columns % 4 == 0);
  const uint32_t columns = terms.columns();
  const uint32_t first = min(place.first(), m - 1);
  const uint64_t first_at = uint64_t{first} * row_size;
  const uint32_t last = m - 1 - first;
  const unsigned lane = place.thread % StagedVector::threads;
  float4* const staged = reinterpret_cast<float4*>(shared) + threadIdx.x / StagedVector::threads * StagedVector::fours;
  float* const partial = shared + (Piece::staged ? blockDim.x * Piece::columns : 0);
  float sum[sums] = {};
  // Threads past the end do as the first one does, and count for nothing.
  const auto place_at = [&](uint32_t c) { return terms.place(c < columns ? c : 0); };
  uint32_t c = Piece::columns * place.thread;
  auto at = place_at(c);
  typename Piece::Place piece_at(at.c);
  const auto early = ready(terms);
  static_assert(Piece::staged || !early.any, "they end with the first pieces, which are the last ones, too");
  if (columns == 0) early.end();
#pragma unroll(Piece::staged ? 1 : 2)
  while (Piece::staged ? columns > 0 : c < columns) {
    const auto term = terms.term(at);
    float4 x[fours];
    const auto ask = [&] {
      if constexpr (Piece::staged) {
        const float* const from = term.x + at.c / StagedVector::columns * StagedVector::columns;
#pragma unroll
        for (unsigned i = 0; i < fours; ++i) {
          const unsigned q = StagedVector::threads * i + lane;
          async_copy_passing<true>(shared_place(staged + Piece::position(q)), from + 4 * q);
        }
        async_commit();
      } else {
#pragma unroll
        for (unsigned i = 0; i < fours; ++i) x[i] = __ldg(reinterpret_cast<const float4*>(term.x + at.c) + i);
      }
    };
    if constexpr (!early.any) ask();
    Piece piece[sums];
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      const uint8_t* const matrix = term.matrix[i / rows];
      piece[i].load(matrix + first_at + min(i % rows, last) * row_size, piece_at.in(matrix));
    }
    if constexpr (early.any) {
      keep_early<Piece::put_off>(piece, row_size == 0);
      early.end();
      ask();
    }
    if constexpr (Piece::staged) {
      // What the vote says does not matter. It needs all that was loaded, so that no load is put off until products of
      // other rows are done.
      uint32_t words = 0;
#pragma unroll
      for (unsigned i = 0; i < sums; ++i) words ^= piece[i].some();
      __syncthreads_or(words == 0);
      async_wait<0>();
      __syncwarp();
#pragma unroll
      for (unsigned i = 0; i < fours; ++i) x[i] = staged[Piece::position(Piece::four(lane, i))];
    }
    const typename Piece::Vector vector(x);
#pragma unroll
    for (unsigned i = 0; i < sums; ++i) {
      const float dot = term.weighted(piece[i].dot(vector, piece_at.in(term.matrix[i / rows])));
      sum[i] += c < columns ? dot : 0.0f;
    }
    if constexpr (Piece::staged) break;
    c += Piece::columns * place.threads;
    at = place_at(c);
    piece_at = typename Piece::Place(at.c);
  }
  const float part = warp_sums<Shape::lanes>(sum);
  constexpr unsigned share = Shape::lanes / sums;
  const unsigned unit_lane = threadIdx.x % Shape::lanes;
  if (unit_lane % share == 0) partial[threadIdx.x / Shape::lanes * sums + unit_lane / share] = part;
  __syncthreads();
  if (place.finishes(m)) {
    const unsigned units = place.threads / Shape::lanes;
    const float* const own = partial + threadIdx.x / rows * units * sums;
    float dots[matrices];
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) {
      dots[i] = 0.0f;
#pragma unroll
      for (unsigned w = 0; w < few_threads / Shape::lanes; ++w) {
        if (w < units) dots[i] += own[w * sums + i * rows + threadIdx.x % rows];
      }
    }
    finish(place.finished(), 0, dots);
  }
}

// One or more matrices times one vector, with what comes before.
template <class Shape, unsigned matrices, class Finish>
ZINC_DEVICE void matvec_few(const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k, const float* x,
                            Finish finish) {
  const FewPlace<Shape> place(k);
  FewMatrices<matrices> terms{{}, x, k};
#pragma unroll
  for (unsigned i = 0; i < matrices; ++i) {
    terms.matrix[i] = matrix[i];
    prefetch_few(matrix[i], m, k, place);
  }
  ZINC_DYNAMIC_SHARED(float, shared);
  few_rows(
      shared, place, terms, m, few_row_bytes<Shape>(k), [](FewMatrices<matrices>&) { return NothingEarly(); }, finish);
}

// What makes terms ready whose matrices are those of the block's slot.
template <unsigned matrices>
struct SlotReady {
  const Experts<matrices>& experts;
  const uint32_t* routing;

  ZINC_DEVICE EarlyReads operator()(FewMatrices<matrices>& terms) const {
    const EarlyReads early;
    const uint32_t expert = routing[blockIdx.y];
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) terms.matrix[i] = experts.matrix(i, expert);
    return early;
  }
};

// A way through slots (dmmv_moe.cuh) that waits for the previous kernel, after it has read early. Grid: y over slots,
// at least as many.
template <class Shape>
struct FewExperts {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t, uint32_t m,
                              uint32_t k, Work work) {
    ZINC_DYNAMIC_SHARED(float, shared);
    const auto here = work(blockIdx.y);
    few_rows(shared, FewPlace<Shape>(k), FewMatrices<matrices>{{}, here.x, k}, m, few_row_bytes<Shape>(k),
             SlotReady<matrices>{experts, routing}, here.finish);
  }
};

// The early reads of a sum of slots. At their end the old value of a row that the thread finishes is asked for.
struct DownReads {
  static constexpr bool any = true;

  EarlyReads early;
  StoreExpected& store;
  bool finishes;
  uint32_t row;

  ZINC_DEVICE void end() const {
    early.end();
    if (finishes) store.expect(row);
  }
};

// As dmmv_moe_down_tiles, with the wait for the previous kernel.
template <class Shape, class Weights, class Push>
ZINC_DEVICE void moe_down_few(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Weights& router, bool add,
                              const Push& p) {
  ZINC_DYNAMIC_SHARED(float, shared);
  const FewSlots<Weights> terms{
      {{weights}, p.expert_stride}, at_byte<float>(x, p.x_offset), p.x_expert_stride, router, p.n_used, p.k};
  const FewPlace<Shape> place(terms.columns());
  StoreExpected store{{at_byte<float>(y, p.y_offset), 0, add}};
  few_rows(
      shared, place, terms, p.m, few_row_bytes<Shape>(p.k),
      [&](const FewSlots<Weights>&) { return DownReads{EarlyReads(), store, place.finishes(p.m), place.finished()}; },
      [&](uint32_t r, unsigned v, const float (&dots)[1]) { store(r, v, dots); });
}

}  // namespace zinc
