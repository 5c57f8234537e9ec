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
//   Format, Row                    the block format for other paths; int8_t or uint8_t, how weight bytes are read
//   scale_columns, has_minimum     32, or 16 without minimum
//   step_bytes, alignment          of a row's 256 columns; alignment of rows
//   position(column)               set * 64 + lane of the quad * 16 + byte of a column of a step; neighbouring fours of
//                                  columns stay together
//   set_scale(set)                 a power of two that the bytes of a set are to be multiplied with
//   Fragment                       what a lane holds of a row's step: load(first byte of the step, lane of the quad),
//                                  word(set, i), which is four weights as bytes
//   Lane                           (lane of the quad): what Factors needs to know of it
//   Factors                        (fragment, Lane): scale[scale of a set, all sets], outer, and with minimums
//                                  minimum[2] of the groups 2 lane and 2 lane + 1, outer_minimum
#pragma once

#include "zinc/dmmv.cuh"
#include "zinc/dmmv_planes.cuh"
#include "zinc/mma.cuh"
#include "zinc/shared_address.cuh"

namespace zinc {

// True where the products are compiled in: compute capability 8.0 and later, and the emulator.
constexpr bool has_tiles = ZINC_ARCH == 0 || ZINC_ARCH >= 80;

// A block has `warps` warps, each of which has the weights of `stages` steps on their way; at most `steps` steps of
// `vectors` vectors are in shared memory, of which `head` bytes exist whatever their number.
template <unsigned warps_, unsigned stages_, unsigned steps_, unsigned head_, unsigned vectors_ = 1>
struct TileShape {
  static constexpr unsigned warps = warps_;
  static constexpr unsigned threads = warps * warp_size;
  static constexpr unsigned stages = stages_;
  static constexpr unsigned steps = steps_;
  static constexpr unsigned head = head_;
  static constexpr unsigned vectors = vectors_;
  static_assert((warps & (warps - 1)) == 0, "the warps are split evenly");
};

constexpr unsigned mma_rows = 16;

// The block's shared memory: zeros, partial sums of the warps that share a tile, in two turns, then planes.
template <class Tiles, class Shape>
struct TileMemory {
  static constexpr unsigned partial_floats = mma_rows * Shape::vectors;
  static constexpr unsigned partial_at = PlaneLayout<Tiles>::zero_bytes;
  static constexpr unsigned planes_at = partial_at + 2 * Shape::warps * partial_floats * 4;
  static_assert(planes_at <= Shape::head, "the launch block reserves what does not depend on the columns");

  uint8_t* memory;

  ZINC_DEVICE float* partial(unsigned turn, unsigned warp) const {
    return reinterpret_cast<float*>(memory + partial_at) + (turn * Shape::warps + warp) * partial_floats;
  }
  ZINC_DEVICE Planes<Tiles> vector(unsigned v, uint32_t steps) const {
    return {memory + planes_at + v * steps * PlaneLayout<Tiles>::step_bytes, steps};
  }
  // Brings `vectors` vectors in, by all threads; a barrier must follow. True as Planes::fill is.
  template <class Source>
  ZINC_DEVICE bool fill(const Source& source, uint32_t columns, uint32_t steps) const {
    for (unsigned i = threadIdx.x; i < PlaneLayout<Tiles>::zero_bytes / 4; i += Shape::threads) {
      reinterpret_cast<uint32_t*>(memory)[i] = 0;
    }
    bool unfit = false;
#pragma unroll 1
    for (unsigned v = 0; v < Shape::vectors; ++v) {
      unfit = vector(v, steps).template fill<Shape::threads>(source, v, columns) || unfit;
    }
    return unfit;
  }
};

// A lane's view of the planes.
template <class Tiles, class Shape>
struct TileLane {
  using Layout = PlaneLayout<Tiles>;

  SharedAddress planes;  // of vector 0, or zeros
  SharedAddress scales;  // of vector 0
  SharedAddress sums;
  uint32_t plane_stride;  // between steps, 0 for zeros
  uint32_t plane_vector;  // between vectors, 0 for zeros
  uint32_t vector_stride;
  typename Tiles::Lane lane;
  int32_t start[4];  // of the integer sums, see magic

  // 1.5 * 2^23: an integer below 2^22 in magnitude added to its bits is the float of the sum.
  static constexpr int32_t magic_bits = 0x4B400000;
  static constexpr float magic = 12582912.0f;

  ZINC_DEVICE TileLane(const TileMemory<Tiles, Shape>& memory, uint32_t steps)
      : planes(own(memory, steps)),
        scales(memory.vector(0, steps).scales() + quad_lane() * (step_sets * Layout::set_scales * 4)),
        sums(memory.vector(0, steps).sums() + quad_lane() * 8),
        vector_stride(steps * Layout::step_bytes),
        lane(quad_lane()) {
    plane_stride = held(mine() ? Layout::plane_bytes : 0);
    plane_vector = mine() ? vector_stride : 0;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) start[i] = static_cast<int32_t>(held(magic_bits));
  }

  // Adds this lane's share of the products of its two rows with a step of all vectors.
  ZINC_DEVICE void add(float (&sum)[2][Shape::vectors], const typename Tiles::Fragment (&row)[2], uint32_t step) const {
    const typename Tiles::Factors factors[2] = {{row[0], lane}, {row[1], lane}};
    float dot[2][Shape::vectors] = {};
    const SharedAddress step_planes = planes + step * plane_stride;
    const SharedAddress step_scales = scales + step * Layout::scale_bytes;
    // The scales of this lane's activations, four at a time.
    float scale[Shape::vectors][4];
#pragma unroll
    for (unsigned set = 0; set < step_sets; ++set) {
      if (set * Layout::set_scales % 4 == 0) {
#pragma unroll
        for (unsigned v = 0; v < Shape::vectors; ++v) {
          const uint4 four = (step_scales + (v * vector_stride + set * Layout::set_scales * 4)).load4();
          scale[v][0] = __uint_as_float(four.x);
          scale[v][1] = __uint_as_float(four.y);
          scale[v][2] = __uint_as_float(four.z);
          scale[v][3] = __uint_as_float(four.w);
        }
      }
      uint32_t a[2][4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        a[i / 2][i % 2 * 2] = row[0].word(set, i);
        a[i / 2][i % 2 * 2 + 1] = row[1].word(set, i);
      }
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        const uint4 b4 = (step_planes + (v * plane_vector + set * 256)).load4();
        const uint32_t b[2][2] = {{b4.x, b4.y}, {b4.z, b4.w}};
        if constexpr (Layout::set_scales == 1) {
          int32_t c[4];
          mma_int8<32, typename Tiles::Row>(c, a[0], b[0], start);
          mma_int8<32, typename Tiles::Row>(c, a[1], b[1]);
          add_sums(dot, v, c, scale[v][set], factors, set);
        } else {
#pragma unroll
          for (unsigned i = 0; i < 2; ++i) {
            int32_t c[4];
            mma_int8<32, typename Tiles::Row>(c, a[i], b[i], start);
            add_sums(dot, v, c, scale[v][(2 * set + i) % 4], factors, 2 * set + i);
          }
        }
      }
    }
    if constexpr (Tiles::has_minimum) {
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        const uint2 x = (sums + (step * Layout::sum_bytes + v * vector_stride)).load2();
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
          const float minimums =
              fmaf(factors[r].minimum[1], __uint_as_float(x.y), factors[r].minimum[0] * __uint_as_float(x.x));
          sum[r][v] = fmaf(-factors[r].outer_minimum, minimums, sum[r][v]);
        }
      }
    }
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) {
        sum[r][v] = fmaf(factors[r].outer, dot[r][v], sum[r][v]);
      }
    }
  }

 private:
  static constexpr unsigned planes_per_half = zinc::planes;

  static ZINC_DEVICE unsigned quad_lane() { return lane_id() % 4; }
  static ZINC_DEVICE unsigned token() { return lane_id() / 4; }
  // Whether the planes of this lane's token belong to its half of the quads.
  static ZINC_DEVICE bool mine() { return token() / planes_per_half == quad_lane() / 2; }
  static ZINC_DEVICE const uint8_t* own(const TileMemory<Tiles, Shape>& memory, uint32_t steps) {
    // Zeros in other banks than the planes that lanes of the same eight read.
    return mine() ? memory.vector(0, steps).memory + token() / planes_per_half * 128 + token() % planes_per_half * 32 +
                        quad_lane() % 2 * 16
                  : memory.memory + (token() % 4 < 2 ? 64 : 0);
  }

  static ZINC_DEVICE void add_sums(float (&dot)[2][Shape::vectors], unsigned v, const int32_t (&c)[4], float x_scale,
                                   const typename Tiles::Factors (&factors)[2], unsigned which) {
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      const float low = __int_as_float(c[2 * r]) - magic;
      const float high = __int_as_float(c[2 * r + 1]) - magic;
      dot[r][v] = fmaf(fmaf(high, 256.0f, low), x_scale * factors[r].scale[which], dot[r][v]);
    }
  }
};

// Products of `matrices` matrices of m rows of k columns with the vectors of `source`, for the tiles that block `block`
// of `blocks` has; see for_row_groups for finish. A tile has 16 rows of one matrix, or 8 each of two. False, and
// nothing done, if the activations do not fit into planes. All threads of the block must be here; rows are aligned.
template <class Tiles, class Shape, unsigned matrices, class Source, class Finish>
ZINC_DEVICE bool tile_matvec(const TileMemory<Tiles, Shape>& memory, const uint8_t* const (&matrix)[matrices],
                             uint32_t m, uint32_t k, const Source& source, uint32_t block, uint32_t blocks,
                             Finish finish) {
  static_assert(matrices == 1 || matrices == 2);
  using Fragment = typename Tiles::Fragment;
  constexpr unsigned tile_rows = mma_rows / matrices;
  const uint32_t steps = (k + step_columns - 1) / step_columns;
  const uint32_t tiles = m / tile_rows + (m % tile_rows != 0);
  const uint64_t bytes = row_bytes<typename Tiles::Format>(k);

  // Where a block has fewer tiles than warps, several warps share one, each with every split-th step.
  const uint32_t block_tiles = max((tiles + blocks - 1) / blocks, 1u);
  unsigned split = 1;
  while (split < Shape::warps && block_tiles * split * 2 <= Shape::warps && split * 2 <= steps) split *= 2;
  const unsigned slots = Shape::warps / split;
  const unsigned slot = warp_id() / split;
  const unsigned part = warp_id() % split;
  const uint32_t stride = blocks * slots;
  const unsigned group = lane_id() / 4;
  const unsigned lane = lane_id() % 4;

  // The next step to load: tile, step and where its two rows lie.
  uint32_t next_tile = slot * blocks + block;
  uint32_t next_step = part;
  const uint8_t* next_row[2];
  const auto find_rows = [&] {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint64_t r = uint64_t{next_tile} * tile_rows + group + (matrices == 1 ? 8 * i : 0);
      next_row[i] = matrix[i % matrices] + (r < m ? r : m - 1) * bytes + next_step * Tiles::step_bytes;
    }
  };
  Fragment weights[Shape::stages][2];
  const auto load_next = [&](Fragment(&to)[2]) {
    if (next_tile >= tiles) return;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      to[i].load(next_row[i], lane);
      next_row[i] += split * Tiles::step_bytes;
    }
    next_step += split;
    if (next_step >= steps) {
      next_step = part;
      next_tile += stride;
      find_rows();
    }
  };
  find_rows();
#pragma unroll
  for (unsigned s = 0; s < Shape::stages; ++s) load_next(weights[s]);

  // The weights are on their way while the planes are made.
  if (__syncthreads_or(memory.fill(source, k, steps))) return false;

  const TileLane<Tiles, Shape> x(memory, steps);
  float sum[2][Shape::vectors] = {};
  unsigned turn = 0;
  const auto finish_tile = [&](uint32_t tile) {
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) sum[r][v] = warp_sum<4>(sum[r][v]);
    }
    const uint64_t first = uint64_t{tile} * tile_rows;
    if (split == 1) {
      const uint64_t r = first + group + (matrices == 1 ? 8 * lane : 0);
      if (lane < 2 / matrices && r < m) {
#pragma unroll
        for (unsigned v = 0; v < Shape::vectors; ++v) {
          float dots[matrices];
#pragma unroll
          for (unsigned i = 0; i < matrices; ++i)
            dots[i] = matrices == 2 ? sum[i][v] : lane == 0 ? sum[0][v] : sum[1][v];
          finish(static_cast<uint32_t>(r), v, dots);
        }
      }
    } else {
      if (lane < 2) {
        float* const partial = memory.partial(turn, warp_id()) + group + 8 * lane;
#pragma unroll
        for (unsigned v = 0; v < Shape::vectors; ++v) partial[v * mma_rows] = lane == 0 ? sum[0][v] : sum[1][v];
      }
      __syncthreads();
      if (part == 0) {
        for (unsigned i = lane_id(); i < tile_rows * Shape::vectors; i += warp_size) {
          const unsigned v = i / tile_rows;
          const unsigned row = i % tile_rows;
          float dots[matrices] = {};
          for (unsigned w = 0; w < split; ++w) {
#pragma unroll
            for (unsigned j = 0; j < matrices; ++j) {
              dots[j] += memory.partial(turn, warp_id() + w)[v * mma_rows + j * tile_rows + row];
            }
          }
          if (first + row < m) finish(static_cast<uint32_t>(first + row), v, dots);
        }
      }
      turn ^= 1;
    }
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
#pragma unroll
      for (unsigned v = 0; v < Shape::vectors; ++v) sum[r][v] = 0.0f;
    }
  };

  uint32_t tile = slot * blocks + block;
  uint32_t step = part;
  while (tile < tiles) {
#pragma unroll
    for (unsigned s = 0; s < Shape::stages; ++s) {
      if (tile < tiles) {
        x.add(sum, weights[s], step);
        load_next(weights[s]);
        step += split;
        if (step >= steps) {
          finish_tile(tile);
          step = part;
          tile += stride;
        }
      }
    }
  }
  // A last turn in which only other slots have a tile.
  if (split > 1 && tile - slot * blocks < tiles) finish_tile(tile);
  return true;
}

// matvec on the tensor cores where rows, columns and activations allow it, else in f32. `memory` is the block's dynamic
// shared memory.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, unsigned matrices, class Source, class Finish>
ZINC_DEVICE void matvec_tiles(uint8_t* memory, const uint8_t* const (&matrix)[matrices], uint32_t m, uint32_t k,
                              const Source& source, uint32_t block, uint32_t blocks, Finish finish) {
  using Format = typename Tiles::Format;
  if constexpr (has_tiles) {
    bool fits = k > 0 && k <= Shape::steps * step_columns && row_bytes<Format>(k) % Tiles::alignment == 0;
#pragma unroll
    for (unsigned i = 0; i < matrices; ++i) fits = fits && is_aligned(matrix[i], Tiles::alignment);
    if (fits &&
        tile_matvec<Tiles, Shape>(TileMemory<Tiles, Shape>{memory}, matrix, m, k, source, block, blocks, finish)) {
      return;
    }
    __syncthreads();
  }
  using Tile = ActivationTile<Format, tile_columns, Shape::vectors>;
  static_assert(sizeof(Tile) <= Shape::head, "the launch block reserves what does not depend on the columns");
  using Rows = RowShape<Shape::warps, rows, Shape::vectors>;
  Activations<Tile, Shape::threads, Source> activations(*reinterpret_cast<Tile*>(memory), k, source);
  matvec<Rows>(matrix, m, activations, block, blocks, finish);
}

// The plain contract: y[r] = dot, or y[r] += dot where acc_mode is not 0, for one vector.
template <class Tiles, class Shape, unsigned rows, unsigned tile_columns, class Push>
ZINC_DEVICE void dmmv_tiles(const uint8_t* weights, const uint8_t* x, uint8_t* y, const Push& p) {
  ZINC_DYNAMIC_SHARED(uint8_t, memory);
  const uint8_t* const matrix[] = {weights + p.a_offset};
  matvec_tiles<Tiles, Shape, rows, tile_columns>(
      memory, matrix, p.m, p.k, ActivationVectors{at_byte<float>(x, p.x_offset), 0, 1}, blockIdx.x, gridDim.x,
      StoreRow{at_byte<float>(y, p.y_offset), 0, p.acc_mode != 0});
}

}  // namespace zinc
