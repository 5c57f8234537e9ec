// Matrix-vector products of quantized matrices with f32 vectors on the int8 tensor cores: exact integer sums of weights
// with the planes of the activations (dmmv_planes.cuh), f32 between groups of columns that share a scale.
//
// A warp multiplies tiles of 16 rows in steps of 256 columns. A quad of lanes owns rows g and g + 8 of the tile. In a
// set of 64 columns, every lane has 16 columns of both rows, which feed two instructions. Token n of the instruction is
// plane n % 4 of the activations that belong to lanes 0 and 1 of the quads (n < 4) or 2 and 3 (n >= 4), and zero
// for the other two; so lanes 0 and 1 get the sums of their own columns, planes 0, 1 and 2, 3, and lanes 2 and 3
// theirs, and every lane needs the scales of its own columns only.
//
// A format is a struct `Tiles` with
//   Format, Row                the block format for other paths; int8_t or uint8_t, how weight bytes are read
//   scale_columns, has_minimum 32, or 16 without minimum
//   step_bytes, alignment      of a row's 256 columns; alignment of the matrix and of all row sizes
//   pitch                      between rows in shared memory, where lanes take weights from a copy there, which needs
//                              no alignment; 0 where they load them
//   ring_steps, ring_pitch     with a pitch, for shapes with rings: steps of a ring, bytes between its rows
//   factor_bytes               with a pitch, of the factors at the head of a block, where rows may end inside a step;
//                              0 where they do not
//   position(column)           set * 64 + lane of the quad * 16 + byte of a column of a step; neighbouring eights of
//                              columns stay together
//   interleaved                whether these eights and those 16 columns further on, which they share 16 bytes with,
//                              alternate byte by byte instead
//   halves                     whether this is for halves of vectors (see TileHalves) instead
//   set_scale(set)             a power of two that the bytes of a set are to be multiplied with
//   Lane                       (lane of the quad): what decoding needs to know of it
//   Fragment                   what a lane holds of a row's step: load(first byte of the step, lane of the quad), or
//                              with a pitch load(StagedRow, Lane); word(set, i, Lane) is four weights as bytes,
//                              or of `parts` = 2, word(set, i, Lane, part) what four weights are the difference of
//   has_outer                  whether Factors has factors of all scales and of all minimums
//   Factors                    (fragment, Lane): scale[scale of a set, all sets], outer, and with minimums minimum[2]
//                              of the groups 2 lane and 2 lane + 1, outer_minimum
#pragma once

#include "zinc/dmmv.cuh"
#include "zinc/dmmv_planes.cuh"
#include "zinc/mma.cuh"
#include "zinc/quant/staged_row.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// True where the products are compiled in: compute capability 8.0 and later, and the emulator.
constexpr bool has_tiles = ZINC_ARCH == 0 || ZINC_ARCH >= 80;

// A block has `warps` warps, at least `split` of them on a tile, each of which has the weights of `stages` steps on
// their way; at most `steps` steps, over all `vectors` vectors, are in shared memory, of which `head` bytes exist
// whatever their number. `cached` says whether weights that are staged are copied by way of the first cache, `hold`
// whether warps have so many steps that constants are worth registers, `ring` whether they stage whole rows where they
// can (see RingFeed).
template <unsigned warps_, unsigned split_, unsigned stages_, unsigned steps_, unsigned head_, bool cached_ = false,
          bool hold_ = true, bool ring_ = false, unsigned vectors_ = 1>
struct TileShape {
  static constexpr unsigned warps = warps_;
  static constexpr unsigned threads = warps * warp_size;
  static constexpr unsigned split = split_;
  static constexpr unsigned stages = stages_;
  static constexpr unsigned steps = steps_;
  static constexpr unsigned head = head_;
  static constexpr bool cached = cached_;
  static constexpr bool hold = hold_;
  static constexpr bool ring = ring_;
  static constexpr unsigned vectors = vectors_;
  template <unsigned count>
  using With = TileShape<warps, split, stages, steps, head, cached, hold, false, count>;
  static_assert((warps & (warps - 1)) == 0, "the warps are split evenly");
};

constexpr unsigned mma_rows = 16;

// The bytes of a step of a tile in shared memory, for formats that go through it.
template <class Tiles>
constexpr unsigned stage_bytes = mma_rows * Tiles::pitch;

// What a warp has there: a step for each stage, or a ring of some.
template <class Tiles, class Shape>
constexpr unsigned warp_stage_bytes() {
  if constexpr (Shape::ring) {
    static_assert(Tiles::ring_pitch >= Shape::stages * Tiles::pitch);
    return mma_rows * Tiles::ring_pitch;
  } else {
    return stage_bytes<Tiles> * Shape::stages;
  }
}

// The block's shared memory: zeros, partial sums of the warps that share a tile, in two turns, what the warps stage,
// then planes.
template <class Tiles, class Shape>
struct TileMemory {
  static constexpr unsigned partial_floats = mma_rows * Shape::vectors;
  static constexpr unsigned partial_at = zero_bytes;
  static constexpr unsigned stages_at = partial_at + 2 * Shape::warps * partial_floats * 4;
  static constexpr unsigned warp_stages = warp_stage_bytes<Tiles, Shape>();
  static constexpr unsigned planes_at = stages_at + Shape::warps * warp_stages;
  static_assert(planes_at <= Shape::head, "the launch file reserves what does not depend on the columns");
  static_assert(planes_at % 128 == 0, "planes begin in the first bank");

  uint8_t* memory;

  ZINC_DEVICE uint8_t* warp_stage() const { return memory + stages_at + warp_id() * warp_stages; }
  ZINC_DEVICE float* partial(unsigned turn, unsigned warp) const {
    return reinterpret_cast<float*>(memory + partial_at) + (turn * Shape::warps + warp) * partial_floats;
  }
  ZINC_DEVICE auto vector(unsigned v, uint32_t steps) const {
    if constexpr (Tiles::halves) {
      return Halves<Shape::vectors>{memory + planes_at, steps};
    } else {
      return Planes<Tiles>{memory + planes_at + v * steps * PlaneLayout<Tiles>::step_bytes, steps};
    }
  }
  // Brings `vectors` vectors in, by all threads; a barrier must follow. True as Planes::fill is.
  template <class Source>
  ZINC_DEVICE bool fill(const Source& source, uint32_t columns, uint32_t steps) const {
    if constexpr (Tiles::halves) {
      return vector(0, steps).template fill<Shape::threads>(source, columns);
    } else {
      for (unsigned i = threadIdx.x; i < zero_bytes / 4; i += Shape::threads) {
        reinterpret_cast<uint32_t*>(memory)[i] = 0;
      }
      bool unfit = false;
#pragma unroll 1
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        unfit = vector(v, steps).template fill<Shape::threads>(source, v, columns) || unfit;
      }
      return unfit;
    }
  }
};

// How the integer sums of a row with two planes, the second one's worth 2^8 times more, become a float. They start from
// the bits of 1.5 * 2^23 and 1.5 * 2^31: an integer n below 2^22 in magnitude added to these is the float of the sum
// with n and 2^8 n.
struct TwoPlanes {
  static constexpr int32_t low_start = 0x4B400000;
  static constexpr int32_t high_start = 0x4F400000;
  static constexpr float started = 12582912.0f + 3221225472.0f;  // exact

  int32_t start[4];

  explicit ZINC_DEVICE TwoPlanes(bool hold) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) start[i] = static_cast<int32_t>(held(i % 2 == 0 ? low_start : high_start, hold));
  }

  static ZINC_DEVICE float both(int32_t low, int32_t high) {
    // The difference is exact, as a multiple of 2^8 that is not much larger than 2^31.
    return (__int_as_float(high) - started) + __int_as_float(low);
  }
};

// A lane's view of the planes of one vector, or of several.
template <class Tiles, class Shape>
struct TileLane : TwoPlanes {
  using Layout = PlaneLayout<Tiles>;

  SharedAddress own_planes;  // of vector 0, or zeros
  SharedAddress scales;      // of vector 0
  SharedAddress sums;
  uint32_t plane_stride;  // between steps, 0 for zeros
  uint32_t set_at[step_sets];
  uint32_t plane_vector;  // between vectors, 0 for zeros
  uint32_t vector_stride;
  typename Tiles::Lane lane;

  // `first` are the planes of vector 0; those of the next ones follow.
  ZINC_DEVICE TileLane(const uint8_t* zeros, const Planes<Tiles>& first)
      : TwoPlanes(Shape::hold),
        own_planes(mine() ? first.memory + quad_lane() % 2 * 16 : zeros, Shape::hold),
        scales(first.scales() + quad_lane() * (step_sets * Layout::set_scales * 4), Shape::hold),
        sums(first.sums() + quad_lane() * 8, Shape::hold),
        vector_stride(first.steps * Layout::step_bytes),
        lane(quad_lane(), Shape::hold) {
    plane_stride = held(mine() ? Layout::plane_bytes : 0, Shape::hold);
#pragma unroll
    for (unsigned set = 0; set < step_sets; ++set) {
      // Zeros are read from other banks than the planes that lanes of the same eight read.
      const unsigned at = Layout::plane_at(set, token() / planes_per_half, token() % planes_per_half);
      set_at[set] = held(mine() ? at : at % 128 < 64 ? 64 : 0, Shape::hold);
    }
    plane_vector = mine() ? vector_stride : 0;
  }

  // Of a row, what the lane adds up.
  static constexpr unsigned sums_per_row = Shape::vectors;

  // Stores the sums of the quad's lanes as [vector][row].
  static ZINC_DEVICE void store(float* partial, const float (&sum)[2][sums_per_row]) {
    const unsigned lane = quad_lane();
#pragma unroll
    for (unsigned v = 0; v < Shape::vectors; ++v) {
      const float first = warp_sum<4>(sum[0][v]);
      const float second = warp_sum<4>(sum[1][v]);
      if (lane < 2) partial[v * mma_rows + lane_id() / 4 + 8 * lane] = lane == 0 ? first : second;
    }
  }

  // Adds this lane's share of the products of its two rows with a step of all vectors.
  ZINC_DEVICE void add(float (&sum)[2][Shape::vectors], const typename Tiles::Fragment& row0,
                       const typename Tiles::Fragment& row1, uint32_t step) const {
    const typename Tiles::Factors factors[2] = {{row0, lane}, {row1, lane}};
    float dot[2][Shape::vectors] = {};
    const SharedAddress step_planes = own_planes + step * plane_stride;
    const SharedAddress step_scales = scales + step * Layout::scale_bytes;
    // Two sets at a time, for all vectors: more weights would not stay in registers.
#pragma unroll
    for (unsigned first = 0; first < step_sets; first += 2) {
      uint32_t a[Tiles::parts][2][2][4];
#pragma unroll
      for (unsigned p = 0; p < Tiles::parts; ++p) {
#pragma unroll
        for (unsigned i = 0; i < 8; ++i) {
          a[p][i / 4][i % 4 / 2][i % 2 * 2] = word(row0, first + i / 4, i % 4, p);
          a[p][i / 4][i % 4 / 2][i % 2 * 2 + 1] = word(row1, first + i / 4, i % 4, p);
        }
      }
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        float scale[2 * Layout::set_scales];  // of this lane's activations
        read_scales(scale, step_scales + (v * vector_stride + first * Layout::set_scales * 4));
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          const uint4 b4 = (step_planes + (v * plane_vector + set_at[first + i])).load4();
          const uint32_t b[2][2] = {{b4.x, b4.y}, {b4.z, b4.w}};
          int32_t c[Tiles::parts][4];
          if constexpr (Layout::set_scales == 1) {
#pragma unroll
            for (unsigned p = 0; p < Tiles::parts; ++p) {
              mma_int8<32, typename Tiles::Row>(c[p], a[p][i][0], b[0], start);
              mma_int8<32, typename Tiles::Row>(c[p], a[p][i][1], b[1]);
            }
            add_sums(dot, v, c, scale[i], factors, first + i);
          } else {
#pragma unroll
            for (unsigned j = 0; j < 2; ++j) {
#pragma unroll
              for (unsigned p = 0; p < Tiles::parts; ++p) {
                mma_int8<32, typename Tiles::Row>(c[p], a[p][i][j], b[j], start);
              }
              add_sums(dot, v, c, scale[2 * i + j], factors, 2 * (first + i) + j);
            }
          }
        }
      }
    }
#pragma unroll
    for (unsigned v = 0; v < Shape::vectors; ++v) {
#pragma unroll
      for (unsigned r = 0; r < 2; ++r) {
        if constexpr (Tiles::has_outer) {
          sum[r][v] = fmaf(factors[r].outer, dot[r][v], sum[r][v]);
        } else {
          sum[r][v] += dot[r][v];
        }
      }
      if constexpr (Tiles::has_minimum) {
        const uint2 x = (sums + (step * Layout::sum_bytes + v * vector_stride)).load2();
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
          const float minimums =
              fmaf(factors[r].minimum[1], __uint_as_float(x.y), factors[r].minimum[0] * __uint_as_float(x.x));
          if constexpr (Tiles::has_outer) {
            sum[r][v] = fmaf(-factors[r].outer_minimum, minimums, sum[r][v]);
          } else {
            sum[r][v] -= minimums;
          }
        }
      }
    }
  }

 private:
  static constexpr unsigned planes_per_half = zinc::planes;

  static ZINC_DEVICE unsigned quad_lane() { return lane_id() % 4; }
  static ZINC_DEVICE unsigned token() { return lane_id() / 4; }
  // Whether the planes of this lane's token belong to its half of the quads.
  static ZINC_DEVICE bool mine() { return token() / planes_per_half == quad_lane() / 2; }

  static ZINC_DEVICE void read_scales(float (&scale)[2], SharedAddress from) {
    const uint2 v = from.load2();
    scale[0] = __uint_as_float(v.x);
    scale[1] = __uint_as_float(v.y);
  }
  static ZINC_DEVICE void read_scales(float (&scale)[4], SharedAddress from) {
    const uint4 v = from.load4();
    scale[0] = __uint_as_float(v.x);
    scale[1] = __uint_as_float(v.y);
    scale[2] = __uint_as_float(v.z);
    scale[3] = __uint_as_float(v.w);
  }

  ZINC_DEVICE uint32_t word(const typename Tiles::Fragment& row, unsigned set, unsigned i, unsigned part) const {
    if constexpr (Tiles::parts == 1) {
      return row.word(set, i, lane);
    } else {
      return row.word(set, i, lane, part);
    }
  }

  static ZINC_DEVICE void add_sums(float (&dot)[2][Shape::vectors], unsigned v, const int32_t (&c)[Tiles::parts][4],
                                   float x_scale, const typename Tiles::Factors (&factors)[2], unsigned which) {
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      float sum;
      if constexpr (Tiles::parts == 1) {
        sum = both(c[0][2 * r], c[0][2 * r + 1]);
      } else {
        sum = (__int_as_float(c[0][2 * r + 1]) - __int_as_float(c[1][2 * r + 1])) +
              (__int_as_float(c[0][2 * r]) - __int_as_float(c[1][2 * r]));
      }
      dot[r][v] = fmaf(sum, x_scale * factors[r].scale[which], dot[r][v]);
    }
  }
};

// A lane's view of the halves of two, four or eight vectors. Weights times their integer scales are exact in binary16,
// so the products of a step are added up by the tensor cores, and so are the minimums.
template <class Tiles, class Shape>
struct TileHalves {
  using Halves = zinc::Halves<Shape::vectors>;
  static constexpr bool eight = Shape::vectors == 8;
  static constexpr unsigned chains = 4;  // of products that wait for one another
  // Two vectors have four tokens: the other half of the lanes does the same.
  static constexpr unsigned token_lanes = eight ? warp_size : Shape::vectors * 8;

  SharedAddress halves;  // of the lane's token
  SharedAddress sums;
  SharedAddress scales;  // of the vectors whose sums the lane has
  typename Tiles::Lane lane;

  ZINC_DEVICE TileHalves(const uint8_t*, const Halves& all)
      : halves(all.memory + lane_id() % token_lanes * 16, Shape::hold),
        sums(all.sums() + lane_id() % token_lanes * (eight ? 8 : 4), Shape::hold),
        scales(all.scales() + own() * 4, Shape::hold),
        lane(lane_id() % 4, Shape::hold) {}

  static constexpr unsigned sums_per_row = eight ? 2 : 1;

  // Stores the sums of the quad's lanes as [vector][row].
  static ZINC_DEVICE void store(float* partial, const float (&sum)[2][sums_per_row]) {
    float* const at = partial + own() * mma_rows + lane_id() / 4;
    if (lane_id() % 4 * 8 >= token_lanes) return;
#pragma unroll
    for (unsigned i = 0; i < sums_per_row; ++i) {
      at[i * mma_rows] = sum[0][i];
      at[i * mma_rows + 8] = sum[1][i];
    }
  }

  // Adds the products of the lane's two rows with a step of its vectors.
  ZINC_DEVICE void add(float (&sum)[2][sums_per_row], const typename Tiles::Fragment& row0,
                       const typename Tiles::Fragment& row1, uint32_t step) const {
    const typename Tiles::Factors factors[2] = {{row0, lane}, {row1, lane}};
    const SharedAddress here = halves + step * Halves::step_bytes;
    float c[chains][4] = {};
#pragma unroll
    for (unsigned set = 0; set < 4; ++set) {
      const uint32_t scale[2] = {factors[0].scale(set), factors[1].scale(set)};
#pragma unroll
      for (unsigned eight_columns = 0; eight_columns < 2; ++eight_columns) {
        uint32_t a[2][4];
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned word = 2 * eight_columns + i / 2;
          a[i / 2][i % 2 * 2] = exact_halves(row0.pair(set, word, i % 2, lane), scale[0], 0);
          a[i / 2][i % 2 * 2 + 1] = exact_halves(row1.pair(set, word, i % 2, lane), scale[1], 0);
        }
        const SharedAddress part = here + (2 * set + eight_columns) * Halves::part_bytes;
#pragma unroll
        for (unsigned piece = 0; piece < (eight ? 2 : 1); ++piece) {
          const uint4 b4 = (part + piece * Halves::piece_bytes).load4();
          const uint32_t b[2][2] = {{b4.x, b4.y}, {b4.z, b4.w}};
          const unsigned chain = (eight ? piece : eight_columns) * 2;
          mma_half(c[chain], a[0], b[0]);
          mma_half(c[chain + 1], a[1], b[1]);
        }
      }
    }
    const uint32_t minimums[4] = {factors[0].minimums, factors[1].minimums, factors[0].minimums, factors[1].minimums};
    float m[4] = {};
    {
      uint32_t b[2] = {0, 0};
      const SharedAddress at = sums + step * Halves::sum_bytes;
      if constexpr (eight) {
        const uint2 both = at.load2();
        b[0] = both.x;
        b[1] = both.y;
      } else {
        b[0] = at.load();
      }
      mma_half(m, minimums, b);
    }
    float scale[2];
    const SharedAddress at = scales + step * Halves::scale_bytes;
    if constexpr (eight) {
      const uint2 both = at.load2();
      scale[0] = __uint_as_float(both.x);
      scale[1] = __uint_as_float(both.y);
    } else {
      scale[0] = scale[1] = __uint_as_float(at.load());
    }
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      float part[2];
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        const float products = (c[0][2 * r + i] + c[1][2 * r + i]) + (c[2][2 * r + i] + c[3][2 * r + i]);
        part[i] = fmaf(factors[r].outer, products, -factors[r].outer_minimum * m[2 * r + i]);
      }
      if constexpr (eight) {
        sum[r][0] = fmaf(scale[0], part[0], sum[r][0]);
        sum[r][1] = fmaf(scale[1], part[1], sum[r][1]);
      } else {
        sum[r][0] = fmaf(scale[0], part[0] + part[1], sum[r][0]);
      }
    }
  }

 private:
  // The vector whose sums the lane has; of eight the first of two.
  static ZINC_DEVICE unsigned own() { return eight ? lane_id() % 4 * 2 : lane_id() % (token_lanes / 8); }
};

// A barrier of the `warps` warps that share a tile, the slot-th of the block; warps of other slots come and go at their
// own pace. The emulator has barriers of the whole block only.
ZINC_DEVICE void join_warps([[maybe_unused]] unsigned slot, [[maybe_unused]] unsigned warps) {
#ifdef ZINC_EMULATOR
  __syncthreads();
#else
  // Barrier 0 is __syncthreads().
  asm volatile("barrier.sync %0, %1;" ::"r"(slot + 1), "r"(warps * warp_size) : "memory");
#endif
}

// The tiles and steps of a warp. A tile has 16 rows of one matrix, or 8 each of two.
template <class Tiles, class Shape, unsigned matrices>
struct TileWork {
  static_assert(matrices == 1 || matrices == 2);
  static constexpr unsigned tile_rows = mma_rows / matrices;
  // Blocks with many tiles have this many warps on each: all have work until near the end.
  static constexpr unsigned least_split = Shape::split;

  uint32_t m;
  uint32_t tiles;
  uint32_t steps;
  uint64_t row_size;
  unsigned split;  // warps that share a tile, each with every split-th step
  unsigned slot;   // which of the tiles that the block works on at a time
  unsigned part;   // which of the warps of the tile
  uint32_t first;  // tile
  uint32_t tile_stride;

  ZINC_DEVICE TileWork(uint32_t m, uint32_t k, uint32_t block, uint32_t blocks)
      : m(m), tiles(m / tile_rows + (m % tile_rows != 0)), steps((k + step_columns - 1) / step_columns) {
    row_size = row_bytes<typename Tiles::Format>(k);
    // As many as leave each block a warp for all its tiles at once.
    split = 1;
#pragma unroll
    for (unsigned more = 2; more <= Shape::warps; more *= 2) {
      const bool idle = tiles <= uint64_t{blocks} * (Shape::warps / more);
      if ((more <= least_split || idle) && more <= steps) split = more;
    }
    const unsigned slots = Shape::warps / split;
    slot = warp_id() / split;
    part = warp_id() % split;
    first = slot * blocks + block;
    tile_stride = blocks * slots;
  }

  // Goes on to the warp's next step.
  ZINC_DEVICE bool advance(uint32_t& tile, uint32_t& step) const {
    step += split;
    if (step < steps) return false;
    step = part;
    tile += tile_stride;
    return true;
  }
};

// Asks for what a warp multiplies first. To be called before wait_for_previous().
template <class Tiles, class Shape>
ZINC_DEVICE void prefetch_tiles(const uint8_t* matrix, uint32_t m, uint32_t k, uint32_t block, uint32_t blocks) {
#if ZINC_ARCH >= 90
  const TileWork<Tiles, Shape, 1> work(m, k, block, blocks);
  const uint32_t row = work.first * mma_rows + lane_id();
  if (work.first < work.tiles && work.part < work.steps && lane_id() < mma_rows && row < m) {
    constexpr uint64_t unit = 16;
    const uint64_t at = uint64_t{work.part} * Tiles::step_bytes;
    const uint64_t from = reinterpret_cast<uint64_t>(matrix + row * work.row_size + at) / unit * unit;
    const uint64_t to =
        reinterpret_cast<uint64_t>(matrix + row * work.row_size + min(at + Tiles::step_bytes, work.row_size)) / unit *
        unit;
    if (to > from) prefetch_l2(reinterpret_cast<const uint8_t*>(from), static_cast<uint32_t>(to - from));
  }
#endif
}

// Weights that lanes load into registers, `stages` steps ahead.
template <class Tiles, class Shape, unsigned matrices>
class DirectFeed {
  using Work = TileWork<Tiles, Shape, matrices>;
  using Fragment = typename Tiles::Fragment;

  const Work& work_;
  const uint8_t* const (&matrix_)[matrices];
  uint32_t tile_;  // the next one to load
  uint32_t step_;
  const uint8_t* row_[2];
  Fragment weights_[Shape::stages][2];

 public:
  static constexpr unsigned ahead = Shape::stages;
  static constexpr unsigned unroll = Shape::stages;

  ZINC_DEVICE DirectFeed(const TileMemory<Tiles, Shape>&, const Work& work, const uint8_t* const (&matrix)[matrices])
      : work_(work), matrix_(matrix), tile_(work.first), step_(work.part) {
    find_rows();
  }

  ZINC_DEVICE void load_next(unsigned stage) {
    if (tile_ >= work_.tiles) return;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      weights_[stage][i].load(row_[i], lane_id() % 4);
      row_[i] += work_.split * Tiles::step_bytes;
    }
    if (work_.advance(tile_, step_)) find_rows();
  }

  ZINC_DEVICE void stop() const {}

  template <class Lane, class Use>
  ZINC_DEVICE void use(unsigned stage, uint32_t, uint32_t, const Lane&, Use use) const {
    use(weights_[stage][0], weights_[stage][1]);
  }

 private:
  ZINC_DEVICE void find_rows() {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint64_t r = uint64_t{tile_} * Work::tile_rows + lane_id() / 4 + (matrices == 1 ? 8 * i : 0);
      row_[i] = matrix_[i % matrices] + (r < work_.m ? r : work_.m - 1) * work_.row_size + step_ * Tiles::step_bytes;
    }
  }
};

// Copies of steps of rows to shared memory, for weights whose blocks are not aligned for wide loads: a warp copies the
// aligned 16-byte chunks around the step. Half a warp copies a row.
template <class Tiles>
class StagedStep {
  static constexpr unsigned chunk = 16;
  static constexpr unsigned row_lanes = warp_size / 2;
  // A row's step begins up to 16 - alignment bytes into its first chunk.
  static constexpr unsigned chunks = (Tiles::step_bytes + (chunk - Tiles::alignment) + chunk - 1) / chunk;
  static constexpr unsigned more_chunks = chunks > row_lanes ? chunks - row_lanes : 0;
  static_assert(chunks * chunk <= Tiles::pitch || Tiles::pitch == 0);
  // Whether a row may end inside a step.
  static constexpr bool partial_steps = Tiles::factor_bytes > 0;

 public:
  // Starts the copy of the step that begins at `from`, and of those of the next rows, at most `most_rows` of them. The
  // matrix has `below` rows from this one on; `left` is what is left of a row from there on. Chunks at the end of a row
  // reach into the next one.
  template <unsigned most_rows, bool cached>
  static ZINC_DEVICE void copy(SharedAddress to, const uint8_t* from, uint64_t row_size, uint32_t below,
                               uint64_t left) {
    const unsigned rows = min(below, most_rows);
    const uint64_t readable = (below - rows) * row_size + left;  // from the step of the last row on
    if (rows < most_rows || readable < chunks * chunk || ends(static_cast<uint32_t>(left))) {
      copy_last<most_rows>(to, from, row_size, rows, static_cast<uint32_t>(left), readable);
      return;
    }
    // Rows of a multiple of 16 bytes lie alike in their chunks.
    const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64_t>(from) % chunk);
    const unsigned span = Tiles::step_bytes + (row_size % chunk == 0 ? past : chunk - Tiles::alignment);
    {
      const unsigned c = lane_id() % row_lanes;
      const unsigned odd = lane_id() / row_lanes;
      const uint8_t* row = from + odd * row_size + chunk * c;
      const SharedAddress here = to + (odd * Tiles::pitch + chunk * c);
      if (chunk * c < span) {
#pragma unroll
        for (unsigned i = 0; i < most_rows; i += 2) {
          // Not a multiple of the row's size, which would be a multiplication each.
          row = opaque(row);
          (here + i * Tiles::pitch).template copy16<cached>(whole(row));
          row += 2 * row_size;
        }
      }
    }
    if constexpr (more_chunks > 0) {
      static_assert(more_chunks * most_rows <= warp_size);
      const unsigned c = row_lanes + lane_id() / most_rows;
      const unsigned i = lane_id() % most_rows;
      if (chunk * c < span) {
        (to + (i * Tiles::pitch + chunk * c)).template copy16<cached>(whole(from + i * row_size + chunk * c));
      }
    }
  }

  // What a lane takes of two rows that were copied, of the steps that begin at the addresses of which these are the
  // lower bits. In all lanes of the warp, rows are `row_size` bytes apart.
  template <class Fragment, class Lane>
  static ZINC_DEVICE void take(Fragment (&rows)[2], SharedAddress copied0, SharedAddress copied1, uint32_t address0,
                               uint32_t address1, uint32_t row_size, const Lane& lane) {
    if (Tiles::alignment % 4 == 0 || ((row_size | address0 | address1) & 3u) == 0) {
      rows[0].load(StagedRow<true>(copied0, address0 % chunk), lane);
      rows[1].load(StagedRow<true>(copied1, address1 % chunk), lane);
    } else {
      rows[0].load(StagedRow<false>(copied0, address0 % chunk), lane);
      rows[1].load(StagedRow<false>(copied1, address1 % chunk), lane);
    }
  }

  // Clears the factors behind the end of a row, of which `left` bytes were in the step that was copied from `address`
  // (its lower bits) on: they are the next row's and may be infinite. Nothing else there matters, as it meets zeros.
  static ZINC_DEVICE void end_row(SharedAddress copied, uint32_t address, uint32_t left) {
    if constexpr (partial_steps) {
#pragma unroll
      for (unsigned i = 0; i < Tiles::factor_bytes; ++i) (copied + (address % chunk + left + i)).store_byte(0);
    }
  }

  // Whether rows of which this much is left end inside the step.
  static ZINC_DEVICE bool ends(uint32_t left) { return partial_steps && left < Tiles::step_bytes; }

 private:
  static ZINC_DEVICE const uint8_t* whole(const uint8_t* p) {
    return reinterpret_cast<const uint8_t*>(reinterpret_cast<uint64_t>(p) & ~uint64_t{chunk - 1});
  }

  // The same at the end of rows, with zeros behind the chunks that have bytes of the row, and at the end of the matrix,
  // behind which nothing may be read. A copy of 16 bytes that is told to take fewer is one of 16 to memory checkers.
  template <unsigned most_rows>
  static ZINC_DEVICE void copy_last(SharedAddress to, const uint8_t* from, uint64_t row_size, unsigned rows,
                                    unsigned left, uint64_t readable) {
    const uint8_t* const end = from + (rows - 1) * row_size + readable;
#pragma unroll 1
    for (unsigned at = lane_id(); at < rows * chunks; at += warp_size) {
      const unsigned i = at / chunks;
      const unsigned c = at % chunks;
      const uint8_t* const row = from + i * row_size;
      const uint8_t* const here = whole(row) + chunk * c;
      const SharedAddress there = to + (i * Tiles::pitch + chunk * c);
      if (here >= row + left) {
        there.clear16();
      } else if (here + chunk <= end) {
        there.template copy16<false>(here);
      } else {
        copy_part(there, here, static_cast<unsigned>(end - here));
      }
    }
  }

  // The first `bytes` of a chunk, and zeros.
  static ZINC_DEVICE void copy_part(SharedAddress to, const uint8_t* from, unsigned bytes) {
#pragma unroll 1
    for (unsigned at = 0; at < chunk; at += 4) {
      if (at + 4 <= bytes) {
        (to + at).copy4(from + at);
      } else {
        uint32_t word = 0;
#pragma unroll
        for (unsigned i = 0; i < 3; ++i) {
          if (at + i < bytes) word |= uint32_t{__ldg(from + at + i)} << (8 * i);
        }
        (to + at).store(word);
      }
    }
  }
};

// Weights that go through shared memory.
template <class Tiles, class Shape, unsigned matrices>
class StagedFeed {
  using Work = TileWork<Tiles, Shape, matrices>;
  using Step = StagedStep<Tiles>;

  const Work& work_;
  const uint8_t* const (&matrix_)[matrices];
  uint32_t tile_;  // the next one to copy
  uint32_t step_;
  SharedAddress stages_;

 public:
  static constexpr unsigned ahead = Shape::stages;
  static constexpr unsigned unroll = Shape::stages;

  ZINC_DEVICE StagedFeed(const TileMemory<Tiles, Shape>& memory, const Work& work,
                         const uint8_t* const (&matrix)[matrices])
      : work_(work), matrix_(matrix), tile_(work.first), step_(work.part), stages_(memory.warp_stage()) {}

  ZINC_DEVICE void load_next(unsigned stage) {
    __syncwarp();  // all lanes are done with what was there
    if (tile_ < work_.tiles) {
      const uint32_t first = tile_ * Work::tile_rows;
      const uint64_t at = uint64_t{step_} * Tiles::step_bytes;
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) {
        Step::template copy<Work::tile_rows, Shape::cached>(
            stages_ + (stage * stage_bytes<Tiles> + i * Work::tile_rows * Tiles::pitch),
            matrix_[i] + first * work_.row_size + at, work_.row_size, work_.m - first, work_.row_size - at);
      }
      work_.advance(tile_, step_);
    }
    async_commit();  // a group per stage, empty or not
  }

  // Leaves the shared memory to others, after a barrier.
  ZINC_DEVICE void stop() const { async_wait<0>(); }

  template <class Lane, class Use>
  ZINC_DEVICE void use(unsigned stage, uint32_t tile, uint32_t step, const Lane& lane, Use use) const {
    async_wait<Shape::stages - 1>();
    __syncwarp();
    const unsigned group = lane_id() / 4;
    const SharedAddress rows = stages_ + stage * stage_bytes<Tiles>;
    const uint32_t at0 = address(0, tile, group, step);
    const uint32_t at1 = address(matrices - 1, tile, matrices == 1 ? group + 8 : group, step);
    const uint32_t left = static_cast<uint32_t>(work_.row_size) - step * Tiles::step_bytes;
    if (Step::ends(left)) {
      if (lane_id() % 4 == 0) {
        Step::end_row(rows + group * Tiles::pitch, at0, left);
        Step::end_row(rows + (group + 8) * Tiles::pitch, at1, left);
      }
      __syncwarp();
    }
    typename Tiles::Fragment fragments[2];
    Step::take(fragments, rows + group * Tiles::pitch, rows + (group + 8) * Tiles::pitch, at0, at1,
               static_cast<uint32_t>(work_.row_size), lane);
    use(fragments[0], fragments[1]);
  }

 private:
  // Where the step of a row of the tile lies, its lower bits; rows past the end do not matter.
  ZINC_DEVICE uint32_t address(unsigned i, uint32_t tile, unsigned row, uint32_t step) const {
    const uint32_t r = tile * Work::tile_rows + row;
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(matrix_[i])) + r * static_cast<uint32_t>(work_.row_size) +
           step * Tiles::step_bytes;
  }
};

// Weights that go through shared memory, of warps that have all steps of their tiles. The last steps of 16 rows lie in
// a ring of Tiles::ring_steps, in which whole 32-byte sectors follow one another as in the matrix, so that each is
// asked for once: a step's copy ends with the sector that its last byte is in. For rows of whole rings that begin with
// a sector or in its middle, and whole tiles.
template <class Tiles, class Shape>
class RingFeed {
  using Work = TileWork<Tiles, Shape, 1>;
  static constexpr unsigned chunk = 16;
  static constexpr unsigned steps = Tiles::ring_steps;
  static constexpr unsigned row_lanes = 8;
  static constexpr unsigned rows = warp_size / row_lanes;  // at a time
  static constexpr unsigned copied = row_lanes * chunk;    // bytes of a row with a step, but
  static constexpr unsigned more = 2 * chunk;              // as much more with the first one of a ring
  static constexpr unsigned pitch = Tiles::ring_pitch;
  static_assert(steps * Tiles::step_bytes == steps * copied + more && Tiles::step_bytes >= copied,
                "what a step reads has been copied");
  static_assert(more / chunk * mma_rows == warp_size);
  static_assert(pitch >= steps * Tiles::step_bytes && pitch % chunk == 0);

  const Work& work_;
  const uint8_t* const matrix_;
  const uint8_t* ring_from_;  // of the tile's first row
  uint32_t tile_;             // the next one to copy
  uint32_t step_;
  SharedAddress ring_;

 public:
  static constexpr unsigned ahead = steps - 1;
  static constexpr unsigned unroll = 1;

  static ZINC_DEVICE bool fits(const Work& work, const uint8_t* matrix) {
    return work.split == 1 && work.m % mma_rows == 0 && is_aligned(matrix, chunk) &&
           work.row_size % (steps * Tiles::step_bytes) == 0;
  }

  ZINC_DEVICE RingFeed(const TileMemory<Tiles, Shape>& memory, const Work& work, const uint8_t* const (&matrix)[1])
      : work_(work), matrix_(matrix[0]), tile_(work.first), step_(0), ring_(memory.warp_stage()) {
    find_rows();
  }

  ZINC_DEVICE void load_next(unsigned) {
    __syncwarp();  // all lanes are done with what was there
    if (tile_ < work_.tiles) {
      const unsigned place = step_ % steps;
      if (place == 0) {
        const unsigned row = lane_id() % mma_rows;
        const unsigned at = copied + chunk * (lane_id() / mma_rows);
        (ring_ + (row * pitch + at)).template copy16<Shape::cached>(ring_from_ + row * work_.row_size + at);
      }
      const unsigned row = lane_id() / row_lanes;
      const unsigned at = copied * place + (place == 0 ? 0 : more) + chunk * (lane_id() % row_lanes);
      const SharedAddress to = ring_ + (row * pitch + at);
      const uint8_t* from = ring_from_ + row * work_.row_size + at;
#pragma unroll
      for (unsigned i = 0; i < mma_rows; i += rows) {
        from = opaque(from);
        (to + i * pitch).template copy16<Shape::cached>(from);
        from += rows * work_.row_size;
      }
      if (place == steps - 1) ring_from_ += steps * Tiles::step_bytes;
      if (work_.advance(tile_, step_)) find_rows();
    }
    async_commit();  // a group per step, empty or not
  }

  ZINC_DEVICE void stop() const { async_wait<0>(); }

  template <class Lane, class Use>
  ZINC_DEVICE void use(unsigned, uint32_t, uint32_t step, const Lane& lane, Use use) const {
    async_wait<ahead - 1>();
    __syncwarp();
    const SharedAddress row = ring_ + (lane_id() / 4 * pitch + step % steps * Tiles::step_bytes);
    typename Tiles::Fragment fragments[2];
    fragments[0].load(StagedRow<true>(row, 0), lane);
    fragments[1].load(StagedRow<true>(row + 8 * pitch, 0), lane);
    use(fragments[0], fragments[1]);
  }

 private:
  ZINC_DEVICE void find_rows() { ring_from_ = matrix_ + uint64_t{tile_} * mma_rows * work_.row_size; }
};

// Products of `matrices` matrices of m rows of k columns with the vectors of `source`, for the tiles that block `block`
// of `blocks` has; see for_row_groups for finish. False, and nothing done, if the activations do not fit into planes.
// All threads of the block must be here; rows are aligned as Tiles asks.
template <class Tiles, class Shape, class Feed, unsigned matrices, class Source, class Finish>
ZINC_DEVICE bool tile_matvec(const TileMemory<Tiles, Shape>& memory, const uint8_t* const (&matrix)[matrices],
                             uint32_t m, uint32_t k, const Source& source, uint32_t block, uint32_t blocks,
                             Finish finish) {
  using Work = TileWork<Tiles, Shape, matrices>;
  constexpr unsigned tile_rows = Work::tile_rows;
  const Work work(m, k, block, blocks);
  Feed feed(memory, work, matrix);
#pragma unroll
  for (unsigned s = 0; s < Feed::ahead; ++s) feed.load_next(s);

  // The weights are on their way while the planes are made.
  if (__syncthreads_or(memory.fill(source, k, work.steps))) {
    feed.stop();
    return false;
  }

  using Lane = typename select<Tiles::halves, TileHalves<Tiles, Shape>, TileLane<Tiles, Shape>>::type;
  const Lane x(memory.memory, memory.vector(0, work.steps));
  float sum[2][Lane::sums_per_row] = {};
  unsigned turn = 0;
  const auto finish_tile = [&](uint32_t tile) {
    const uint64_t first = uint64_t{tile} * tile_rows;
    Lane::store(memory.partial(turn % 2, warp_id()), sum);
    if (work.split == 1) {
      __syncwarp();
    } else {
      join_warps(work.slot, work.split);
    }
    const float* const partial = memory.partial(turn % 2, warp_id() - work.part);
    constexpr unsigned floats = TileMemory<Tiles, Shape>::partial_floats;
    if constexpr (Shape::vectors > 1) {
      static_assert(matrices == 1);
      // The sums are dealt out to all lanes of the warps.
      for (unsigned i = work.part * warp_size + lane_id(); i < floats; i += work.split * warp_size) {
        float dots[1] = {partial[i]};
        for (unsigned w = 1; w < work.split; ++w) dots[0] += partial[w * floats + i];
        const unsigned row = i % mma_rows;
        if (first + row < m) finish(static_cast<uint32_t>(first + row), i / mma_rows, dots);
      }
    } else if (work.part == 0) {
      // Lanes 0 .. 15 add the even parts of a row, 16 .. 31 the odd ones.
      const unsigned odd = lane_id() / mma_rows;
      const unsigned row = lane_id() % mma_rows;
      float total = 0.0f;
#pragma unroll
      for (unsigned w = 0; w < Shape::warps; w += 2) {
        if (w + odd < work.split) total += partial[(w + odd) * floats + row];
      }
      total = warp_sum<2, mma_rows>(total);
      const float other = matrices == 2 ? __shfl_xor_sync(full_warp, total, 8) : 0.0f;
      float dots[matrices];
#pragma unroll
      for (unsigned i = 0; i < matrices; ++i) dots[i] = i == 0 ? total : other;
      if (lane_id() < tile_rows && first + row < m) finish(static_cast<uint32_t>(first + row), 0, dots);
    }
    ++turn;
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
      for (unsigned i = 0; i < Lane::sums_per_row; ++i) sum[r][i] = 0.0f;
    }
  };

  uint32_t tile = work.first;
  uint32_t step = work.part;
  while (tile < work.tiles) {
#pragma unroll
    for (unsigned s = 0; s < Feed::unroll; ++s) {
      if (tile < work.tiles) {
        feed.use(s, tile, step, x.lane,
                 [&](const typename Tiles::Fragment& row0, const typename Tiles::Fragment& row1) {
                   x.add(sum, row0, row1, step);
                 });
        feed.load_next(s);
        const uint32_t here = tile;
        if (work.advance(tile, step)) finish_tile(here);
      }
    }
  }
#ifdef ZINC_EMULATOR
  // Its barrier is of all warps: a last turn in which only other slots have a tile.
  if (work.split > 1 && tile - work.slot * blocks < work.tiles) finish_tile(tile);
#endif
  return true;
}

// matvec on the tensor cores where rows, columns and activations allow it, else in f32. `memory` is the block's dynamic
// shared memory.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, unsigned matrices, class Source, class Finish>
ZINC_DEVICE void matvec_tiles(uint8_t* memory, const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k,
                              const Source& source, uint32_t block, uint32_t blocks, Finish finish) {
  using Format = typename Tiles::Format;
  if constexpr (has_tiles) {
    bool fits = k > 0 && k <= Shape::steps / Shape::vectors * step_columns;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) fits = fits && is_aligned(matrix[i], Tiles::alignment);
    const TileMemory<Tiles, Shape> all{memory};
    if constexpr (Shape::ring) {
      using Feed = RingFeed<Tiles, Shape>;
      const bool ring = fits && Feed::fits(TileWork<Tiles, Shape, matrices>(m, k, block, blocks), matrix[0]);
      if (ring && tile_matvec<Tiles, Shape, Feed>(all, matrix, m, k, source, block, blocks, finish)) return;
      fits = fits && !ring;
    }
    using Feed = typename select<(Tiles::pitch > 0), StagedFeed<Tiles, Shape, matrices>,
                                 DirectFeed<Tiles, Shape, matrices>>::type;
    if (fits && tile_matvec<Tiles, Shape, Feed>(all, matrix, m, k, source, block, blocks, finish)) return;
    __syncthreads();
  }
  using Tile = ActivationTile<Format, tile_columns, Shape::vectors>;
  static_assert(sizeof(Tile) <= Shape::head, "the launch file reserves what does not depend on the columns");
  using Rows = RowShape<Shape::warps, rows, Shape::vectors>;
  Activations<Tile, Shape::threads, Source> activations(*reinterpret_cast<Tile*>(memory), k, source);
  matvec<Rows>(matrix, m, activations, block, blocks, finish);
}

// The plain contract: y[r] = dot, or y[r] += dot where acc_mode is not 0, for one vector.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles_in(uint8_t* memory, const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec_tiles<Tiles, Shape, rows, tile_columns>(
      memory, matrix, p.m, p.k, ActivationVectors{at_byte<float>(x, p.x_offset), 0, 1}, blockIdx.x, gridDim.x,
      StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  dmmv_tiles_in<Tiles, Shape, rows, tile_columns>(memory, weights, x, y, p);
}

// The batch contract: Y[r, j] = dot(r, j) for j < vectors, vector j being the k floats at x_offset + 4 j k, its results
// the m floats at y_offset + 4 j m. Grid: y over eights of vectors, which share one pass over the matrix.
constexpr unsigned pass_vectors = 8;

template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p,
                                  uint32_t vectors) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const uint8_t* const matrix[] = {weights + p.a_offset};
  const uint32_t first = pass_vectors * blockIdx.y;
  const uint32_t left = min(vectors - first, pass_vectors);
  const ActivationVectors source{at_byte<float>(x, p.x_offset) + uint64_t{first} * p.k, p.k, left};
  const StoreRow store{at_byte<float>(y, p.y_offset) + uint64_t{first} * p.m, p.m, false};
  const auto finish = [=](uint32_t r, unsigned v, const float (&dots)[1]) {
    if (v < left) store(r, v, dots);
  };
  if (left > 4) {
    matvec_tiles<Tiles, typename Shape::template With<8>, rows, tile_columns>(memory, matrix, p.m, p.k, source,
                                                                              blockIdx.x, gridDim.x, finish);
  } else if (left > 2) {
    matvec_tiles<Tiles, typename Shape::template With<4>, rows, tile_columns>(memory, matrix, p.m, p.k, source,
                                                                              blockIdx.x, gridDim.x, finish);
  } else {
    matvec_tiles<Tiles, typename Shape::template With<2>, rows, tile_columns>(memory, matrix, p.m, p.k, source,
                                                                              blockIdx.x, gridDim.x, finish);
  }
}

// Both in one kernel: acc_mode 0 and 1 are the plain contract, n >= 2 is a batch of n vectors, in f32.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class BatchShape, unsigned batch_columns,
          class Push>
ZINC_DEVICE void dmmv_tiles_or_batch(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  if (p.acc_mode >= 2) {
    using Tile = ActivationTile<typename Tiles::Format, batch_columns, BatchShape::vectors>;
    static_assert(sizeof(Tile) <= Shape::head && BatchShape::threads == Shape::threads);
    dmmv_batch_in<BatchShape>(*reinterpret_cast<Tile*>(memory), weights, x, y, p, p.acc_mode);
  } else {
    dmmv_tiles_in<Tiles, Shape, rows, tile_columns>(memory, weights, x, y, p);
  }
}

}  // namespace zinc
