// Sums of matrix-vector products of few rows on the int8 tensor cores (dmmv_tiles.cuh), for experts: there are rows for
// few warps per matrix, so the columns are dealt out to the warps of a block, and each warp makes the planes of its own
// columns only, which needs no barrier.
#pragma once

#include "zinc/dmmv_moe_down.cuh"
#include "zinc/dmmv_tiles.cuh"
#include "zinc/early.cuh"

namespace zinc {

// A block has `warps` warps, each of which has at most `steps` steps of planes in shared memory. `head` bytes of shared
// memory exist whatever the number of columns.
template <unsigned warps_, unsigned steps_, unsigned head_, unsigned sets_ = 1>
struct ExpertShape {
  static constexpr unsigned warps = warps_;
  static constexpr unsigned threads = warps * warp_size;
  static constexpr unsigned steps = steps_;
  static constexpr unsigned head = head_;
  static constexpr unsigned vectors = 1;
  static constexpr bool hold = false;
  static constexpr unsigned sets = sets_;
  static constexpr unsigned tile_rows = sets * mma_rows;
  static_assert((warps & (warps - 1)) == 0, "the warps are split evenly");
};

// The block's shared memory: partial sums of the warps that share a tile, in two turns, then for each warp zeros, what
// it stages and the planes of `steps` steps.
template <class Tiles, class Shape, unsigned matrices>
struct ExpertMemory {
  static constexpr unsigned partial_floats = matrices * Shape::tile_rows;
  static constexpr unsigned warps_at = 2 * Shape::warps * partial_floats * 4;
  static constexpr unsigned line = 128;  // so that planes begin in the first bank
  static constexpr unsigned planes_at = line + matrices * Shape::sets * stage_bytes<Tiles>;
  static_assert(warps_at % line == 0 && planes_at % line == 0 && PlaneLayout<Tiles>::zero_bytes == line);

  uint8_t* memory;
  uint32_t steps;

  ZINC_DEVICE float* partial(unsigned turn, unsigned warp) const {
    return reinterpret_cast<float*>(memory) + (turn * Shape::warps + warp) * partial_floats;
  }
  ZINC_DEVICE uint8_t* zeros() const {
    const uint32_t plane_bytes = (steps * PlaneLayout<Tiles>::step_bytes + line - 1) / line * line;
    return memory + warps_at + warp_id() * (planes_at + plane_bytes);
  }
  ZINC_DEVICE uint8_t* stage() const { return zeros() + line; }
  ZINC_DEVICE Planes<Tiles> planes() const { return {zeros() + planes_at, steps}; }
};

// What is summed: the products of the matrices (or pairs) of `count` slots' experts with a vector each. A slot's key is
// what has to be read to find its matrix. Matrices have less than 2^32 bytes.
template <unsigned matrices>
struct OneSlot {
  static constexpr bool weighted = false;
  static constexpr uint32_t count = 1;
  struct Key {
    uint32_t expert;
  };

  const Experts<matrices>& experts;
  const uint32_t* routing;
  uint32_t slot;
  const float* vector;

  ZINC_DEVICE Key key(uint32_t) const { return {routing[slot]}; }
  ZINC_DEVICE const uint8_t* matrix(Key key, unsigned i) const { return experts.matrix(i, key.expert); }
  ZINC_DEVICE const float* x(uint32_t) const { return vector; }
};

// The down projections of the slots of a token, with weights.
template <class Weights>
struct WeightedSlots {
  static constexpr bool weighted = true;
  struct Key {
    uint32_t expert;
    typename Weights::Weight weight;
  };

  const Experts<1>& experts;
  const float* vectors;
  uint64_t x_stride;
  Weights router;
  uint32_t count;

  ZINC_DEVICE Key key(uint32_t t) const { return {router.routing[t], router.of(t)}; }
  ZINC_DEVICE const uint8_t* matrix(Key key, unsigned) const { return experts.matrix(0, key.expert); }
  ZINC_DEVICE const float* x(uint32_t t) const { return vectors + t * x_stride; }
};

// The units of a sum: its terms in steps of 256 columns. 2^step_bits warps have every such step of a term, 2^term_bits
// times as many every such term; they are all warps of a tile.
template <unsigned warps>
struct Units {
  uint32_t terms;
  uint32_t steps;
  unsigned step_bits = 0;
  unsigned term_bits = 0;

  ZINC_DEVICE Units(uint32_t terms, uint32_t k) : terms(terms), steps((k + step_columns - 1) / step_columns) {
#pragma unroll
    for (unsigned bits = 1; 1u << bits <= warps; ++bits) {
      if (1u << bits <= steps) step_bits = bits;
    }
#pragma unroll
    for (unsigned bits = 1; 1u << bits <= warps; ++bits) {
      if (1u << bits <= terms && 1u << (bits + step_bits) <= warps) term_bits = bits;
    }
  }

  ZINC_DEVICE unsigned split_bits() const { return step_bits + term_bits; }
  // The most units of a tile that a warp has.
  ZINC_DEVICE uint32_t most() const { return ((steps - 1 >> step_bits) + 1) * ((terms - 1 >> term_bits) + 1); }
  ZINC_DEVICE uint32_t first_step() const { return warp_id() & ((1u << step_bits) - 1); }
  ZINC_DEVICE uint32_t first_term() const { return warp_id() >> step_bits & ((1u << term_bits) - 1); }
};

// A unit of a warp.
struct Unit {
  uint32_t term;
  uint32_t step;

  template <unsigned warps>
  explicit ZINC_DEVICE Unit(const Units<warps>& units) : term(units.first_term()), step(units.first_step()) {}

  // Goes on to the warp's next one. Which is the first again where there is none, and the answer is true.
  template <unsigned warps>
  ZINC_DEVICE bool advance(const Units<warps>& units) {
    step += 1u << units.step_bits;
    if (step < units.steps) return false;
    step = units.first_step();
    term += 1u << units.term_bits;
    if (term < units.terms) return false;
    term = units.first_term();
    return true;
  }
};

// The weights of a warp's unit, in registers.
template <class Tiles, unsigned parts>
class DirectUnit {
  typename Tiles::Fragment rows_[parts][2];

 public:
  explicit ZINC_DEVICE DirectUnit(const uint8_t*) {}

  // Asks for part j: 16 of the rows from the step at `at` on, the `first`-th and the next ones. The matrix has `rows`
  // rows there; those that do not exist are replaced by the last one.
  ZINC_DEVICE void load(unsigned j, const uint8_t* at, uint32_t row_size, unsigned first, unsigned rows, uint32_t) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      rows_[j][i].load(at + min(first + lane_id() / 4 + 8 * i, rows - 1) * row_size, lane_id() % 4);
    }
  }
  ZINC_DEVICE void loaded() const {}
  ZINC_DEVICE void wait() const {}
  ZINC_DEVICE void keep() const { keep_early<false>(rows_, false); }
  template <class Use>
  ZINC_DEVICE void use(unsigned j, uint32_t, const typename Tiles::Lane&, Use use) const {
    use(rows_[j][0], rows_[j][1]);
  }
};

// The same by way of shared memory.
template <class Tiles, unsigned parts>
class StagedUnit {
  using Step = StagedStep<Tiles>;

  SharedAddress stage_;
  uint32_t addresses_[parts];
  uint32_t left_;  // of a row, from the step on

 public:
  explicit ZINC_DEVICE StagedUnit(const uint8_t* stage) : stage_(stage) {}

  ZINC_DEVICE void load(unsigned j, const uint8_t* at, uint32_t row_size, unsigned first, unsigned rows,
                        uint32_t left) {
    __syncwarp();  // all lanes are done with what was there
    const uint8_t* const from = at + first * row_size;
    addresses_[j] = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from));
    left_ = left;
    if (rows > first) {
      Step::template copy<mma_rows, false>(stage_ + j * stage_bytes<Tiles>, from, row_size, rows - first, left);
    }
  }
  ZINC_DEVICE void loaded() const { async_commit(); }
  ZINC_DEVICE void wait() const { async_wait<0>(); }
  ZINC_DEVICE void keep() const {}
  template <class Use>
  ZINC_DEVICE void use(unsigned j, uint32_t row_size, const typename Tiles::Lane& lane, Use use) const {
    __syncwarp();
    const unsigned group = lane_id() / 4;
    const SharedAddress rows = stage_ + j * stage_bytes<Tiles>;
    if (Step::ends(left_)) {
      if (lane_id() % 4 == 0) {
#pragma unroll
        for (unsigned r = group; r < mma_rows; r += 8) {
          Step::end_row(rows + r * Tiles::pitch, addresses_[j] + r * row_size, left_);
        }
      }
      __syncwarp();
    }
    typename Tiles::Fragment fragments[2];
    Step::take(fragments, rows + group * Tiles::pitch, rows + (group + 8) * Tiles::pitch,
               addresses_[j] + group * row_size, addresses_[j] + (group + 8) * row_size, row_size, lane);
    use(fragments[0], fragments[1]);
  }
};

// Sums of terms for the tiles of Shape::tile_rows rows that block `block` of `blocks` has. finish.expect(r) is called
// in the lane that will get finish(r, 0, sums), some time before, for the first 16 rows. The units of a tile are added
// in a fixed order. False, and nothing done, if the vectors do not fit into planes: the same in all blocks. All threads
// of the block must be here; matrices are aligned as Tiles asks; no warp has more units than Shape::steps. ready() is
// called before a vector is read.
template <class Tiles, class Shape, unsigned matrices, class Terms, class Ready, class Finish>
ZINC_DEVICE bool tile_terms(uint8_t* shared, const Terms& terms, const Units<Shape::warps>& units, uint32_t m,
                            uint32_t k, uint32_t block, uint32_t blocks, Ready ready, Finish finish) {
  constexpr unsigned tile_rows = Shape::tile_rows;
  constexpr unsigned parts = matrices * Shape::sets;  // matrix by matrix
  const uint32_t tiles = m / tile_rows + (m % tile_rows != 0);
  const uint32_t bytes = static_cast<uint32_t>(row_bytes<typename Tiles::Format>(k));
  const unsigned split = 1u << units.split_bits();
  const unsigned slot = warp_id() >> units.split_bits();
  const unsigned part = warp_id() & (split - 1);
  const uint32_t first_tile = slot * blocks + block;
  const uint32_t tile_stride = blocks * (Shape::warps >> units.split_bits());

  Unit next(units);  // to load
  const auto first_key = terms.key(next.term);

  const ExpertMemory<Tiles, Shape, matrices> memory{shared, units.most()};
  typename select<(Tiles::pitch > 0), StagedUnit<Tiles, parts>, DirectUnit<Tiles, parts>>::type weights(memory.stage());
  auto factor = first_key;
  const auto load = [&](uint32_t tile, typename Terms::Key key) {
    if constexpr (Terms::weighted) factor = key;
    const uint32_t step_at = next.step * Tiles::step_bytes;
    const uint32_t tile_at = tile * tile_rows * bytes + step_at;
    const uint32_t rows = m - tile * tile_rows;
#pragma unroll
    for (unsigned j = 0; j < parts; ++j) {
      weights.load(j, terms.matrix(key, j / Shape::sets) + tile_at, bytes, j % Shape::sets * mma_rows, rows,
                   bytes - step_at);
    }
    weights.loaded();
    next.advance(units);
  };
  if (first_tile < tiles) {
    load(first_tile, first_key);
    weights.keep();
  }
  ready();

  // A lane's part of a unit's vector.
  constexpr unsigned lane_columns = Planes<Tiles>::lane_columns;
  const auto four = [&](const Unit& unit, unsigned i) {
    const uint32_t c = unit.step * step_columns + lane_columns * lane_id() + 4 * i;
    if (c >= k) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return ActivationVectors{terms.x(unit.term), 0, 1}.four(0, c);
  };
  Unit filled(units);
  float4 values[2] = {four(filled, 0), four(filled, 1)};

  const auto expect = [&](uint32_t tile) {
    const uint32_t r = tile * tile_rows + lane_id();
    if (part == 0 && lane_id() < mma_rows && r < m) finish.expect(r);
  };
  expect(first_tile);

  // The weights are on their way while the planes are made, also by warps without a tile: blocks must agree.
  const Planes<Tiles> planes = memory.planes();
  reinterpret_cast<uint32_t*>(memory.zeros())[lane_id()] = 0;
  bool unfit = false;
  uint32_t own = 0;  // units that the warp has
  for (bool last = false; !last; ++own) {
    Unit following = filled;
    last = following.advance(units);
    if (own > 0) {
      values[0] = four(filled, 0);
      values[1] = four(filled, 1);
    }
    unfit = planes.put(values[0], values[1], own * step_columns + lane_columns * lane_id()) || unfit;
    filled = following;
  }
  __syncwarp();

  const TileLane<Tiles, Shape> x(memory.zeros(), planes);
  float sum[parts][2] = {};
  unsigned turn = 0;
  for (uint32_t base = block; base < tiles; base += tile_stride) {
    const uint32_t tile = base + slot * blocks;
    if (tile < tiles) {
      for (uint32_t unit = 0; unit < own; ++unit) {
        weights.wait();
#pragma unroll
        for (unsigned j = 0; j < parts; ++j) {
          float product[2][1] = {};
          weights.use(j, bytes, x.lane,
                      [&](const typename Tiles::Fragment& row0, const typename Tiles::Fragment& row1) {
                        x.add(product, row0, row1, unit);
                      });
#pragma unroll
          for (unsigned r = 0; r < 2; ++r) {
            if constexpr (Terms::weighted) {
              sum[j][r] = fmaf(factor.weight, product[r][0], sum[j][r]);
            } else {
              sum[j][r] += product[r][0];
            }
          }
        }
        const uint32_t next_tile = unit + 1 < own ? tile : tile + tile_stride;
        if (next_tile < tiles) load(next_tile, terms.key(next.term));
      }
#pragma unroll
      for (unsigned j = 0; j < parts; ++j) {
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) sum[j][r] = warp_sum<4>(sum[j][r]);
        const unsigned lane = lane_id() % 4;
        float* const partial = memory.partial(turn, warp_id()) + j * mma_rows + lane_id() / 4;
        if (lane < 2) partial[8 * lane] = lane == 0 ? sum[j][0] : sum[j][1];
        sum[j][0] = sum[j][1] = 0.0f;
      }
    }
    if (__syncthreads_or(unfit)) {
      weights.wait();
      __syncthreads();  // for those who use the shared memory next
      return false;
    }
    if (part == 0 && tile < tiles) {
      // Lanes 0 .. 15 add the even parts of a row, 16 .. 31 the odd ones.
      const unsigned odd = lane_id() / mma_rows;
      const unsigned row = lane_id() % mma_rows;
      float totals[parts] = {};
#pragma unroll
      for (unsigned w = 0; w < Shape::warps; w += 2) {
        if (w + odd < split) {
#pragma unroll
          for (unsigned j = 0; j < parts; ++j) {
            totals[j] += memory.partial(turn, warp_id() + w + odd)[j * mma_rows + row];
          }
        }
      }
#pragma unroll
      for (unsigned j = 0; j < parts; ++j) totals[j] = warp_sum<2, mma_rows>(totals[j]);
#pragma unroll
      for (unsigned i = 0; i < Shape::sets; ++i) {
        const uint32_t r = tile * tile_rows + i * mma_rows + row;
        float dots[matrices];
#pragma unroll
        for (unsigned j = 0; j < matrices; ++j) dots[j] = totals[j * Shape::sets + i];
        if (odd == 0 && r < m) finish(r, 0, dots);
      }
      if (tile + tile_stride < tiles) expect(tile + tile_stride);
    }
    turn ^= 1;
  }
  return true;
}

// finish, without anything to expect.
template <class Finish>
struct Unexpecting {
  Finish finish;

  ZINC_DEVICE void expect(uint32_t) const {}
  template <unsigned matrices>
  ZINC_DEVICE void operator()(uint32_t r, unsigned v, const float (&sums)[matrices]) const {
    finish(r, v, sums);
  }
};

// Slots on the tensor cores where experts, columns and activations allow it, else in f32. Grid: x over tiles, y over
// slots; both are walked with the grid's stride.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns>
struct TileSlots {
  template <unsigned matrices, class Work>
  static ZINC_DEVICE void run(const Experts<matrices>& experts, const uint32_t* routing, uint32_t slots, uint32_t m,
                              uint32_t k, Work work) {
    using Tile = ActivationTile<typename Tiles::Format, tile_columns, 1>;
    static_assert(sizeof(Tile) <= Shape::head, "the launch file reserves what does not depend on the columns");
    ZINC_DYNAMIC_SHARED(uint8_t, memory);
    const EarlyReads reads;
    bool ended = false;
    const auto ready = [&] {
      if (!ended) reads.end();
      ended = true;
    };
    uint32_t slot = blockIdx.y;
    if constexpr (has_tiles) {
      const Units<Shape::warps> units(1, k);
      if (k > 0 && units.most() <= Shape::steps && experts.are_aligned(Tiles::alignment)) {
        for (; slot < slots; slot += gridDim.y) {
          // What is in shared memory may still be read.
          if (slot != blockIdx.y) __syncthreads();
          const auto here = work(slot);
          const OneSlot<matrices> terms{experts, routing, slot, here.x};
          const Unexpecting<decltype(here.finish)> finish{here.finish};
          if (!tile_terms<Tiles, Shape, matrices>(memory, terms, units, m, k, blockIdx.x, gridDim.x, ready, finish))
            break;
        }
      }
    }
    ready();
    // All slots, or those from the first one on whose vector does not fit.
    for (; slot < slots; slot += gridDim.y) {
      const auto here = work(slot);
      const uint8_t* matrix[matrices];
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) matrix[i] = experts.matrix(i, routing[slot]);
      __syncthreads();
      Activations<Tile, Shape::threads> activations(*reinterpret_cast<Tile*>(memory), k, {here.x, 0, 1});
      matvec<RowShape<Shape::warps, rows>>(matrix, m, activations, blockIdx.x, gridDim.x, here.finish);
    }
  }
};

// dmmv_moe_down on the tensor cores where experts, columns and activations allow it, else in f32.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Weights, class Push>
ZINC_DEVICE void dmmv_moe_down_tiles(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Weights& router,
                                     bool add, const Push& p) {
  using Tile = ActivationTile<typename Tiles::Format, tile_columns, 1>;
  static_assert(sizeof(Tile) <= Shape::head, "the launch file reserves what does not depend on the columns");
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const Experts<1> experts{{weights}, p.expert_stride};
  const StoreRow store{at_byte<float>(y, p.y_offset), 0, add};
  const EarlyReads reads;
  if constexpr (has_tiles) {
    const WeightedSlots<Weights> terms{experts, at_byte<float>(x, p.x_offset), p.x_expert_stride, router, p.n_used};
    const Units<Shape::warps> units(p.n_used, p.k);
    if (p.k > 0 && p.n_used > 0 && units.most() <= Shape::steps && experts.are_aligned(Tiles::alignment)) {
      const auto ready = [&] { reads.end(); };
      if (tile_terms<Tiles, Shape, 1>(memory, terms, units, p.m, p.k, blockIdx.x, gridDim.x, ready,
                                      StoreExpected{store})) {
        return;
      }
    } else {
      reads.end();
    }
  } else {
    reads.end();
  }
  moe_down<RowShape<Shape::warps, rows>>(*reinterpret_cast<Tile*>(memory), weights, x, router, p, store);
}

}  // namespace zinc
