// Stretches of f32 activation vectors in shared memory, arranged so that the lanes of a warp, each on its own unit of a
// quantized row, read 16 bytes each without bank conflicts.
#pragma once

#include "zinc/quant/quants.cuh"
#include "zinc/quant/words.cuh"
#include "zinc/warp.cuh"

namespace zinc {

// `tile_columns` columns of `vector_count` vectors. values[v][4 * run + i][unit] holds columns 4 i .. 4 i + 3 of a run;
// sums[v][run][unit] the sum of the run, which formats with a minimum multiply by it.
template <class Format_, unsigned tile_columns, unsigned vector_count>
struct ActivationTile {
  using Format = Format_;
  static constexpr unsigned columns = tile_columns;
  static constexpr unsigned vectors = vector_count;
  static constexpr unsigned units = columns / unit_columns;
  // Two more than the units, so that the four parts of a run, written by neighbouring threads, lie in different banks.
  static constexpr unsigned pitch = units + 2;
  static_assert(columns % Format::block_columns == 0, "a tile holds whole blocks");

  float4 values[vectors][2 * run_words][pitch];
  float sums[vectors][2][Format::has_minimum ? units : 1];
};

// Where activations come from: `count` vectors in memory, vector v at first + v * stride; 4-byte alignment is enough.
struct ActivationVectors {
  const float* first;
  uint64_t stride;
  uint32_t count;

  // The columns c .. c + 3 of vector v; zeros for a vector that does not exist.
  ZINC_DEVICE float4 four(unsigned v, uint32_t c) const {
    if (v >= count) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float* const x = first + v * stride + c;
    if (is_aligned(x, sizeof(float4))) return __ldg(reinterpret_cast<const float4*>(x));
    return make_float4(__ldg(x), __ldg(x + 1), __ldg(x + 2), __ldg(x + 3));
  }
};

// The activations of a matrix-vector product, brought into a tile stretch by stretch by all `threads` of the block.
// What is in the tile stays there: blocks that work through many rows of a matrix with at most Tile::columns columns
// stage once. Source is ActivationVectors or anything else with `four`.
template <class Tile, unsigned threads, class Source = ActivationVectors>
class Activations {
  using Format = typename Tile::Format;
  static_assert(threads % warp_size == 0);
  // Values of staged_ that are no first column.
  static constexpr uint32_t nothing = 0xFFFFFFFFu;
  static constexpr uint32_t stale = 0xFFFFFFFEu;

  Source source_;
  uint32_t columns_;
  uint32_t staged_ = nothing;

 public:
  Tile& tile;

  ZINC_DEVICE Activations(Tile& tile, uint32_t columns, const Source& source)
      : source_(source), columns_(columns), tile(tile) {}

  ZINC_DEVICE uint32_t columns() const { return columns_; }

  // Goes on to other vectors with the same number of columns, in the same tile.
  ZINC_DEVICE void retarget(const Source& source) {
    source_ = source;
    if (staged_ != nothing) staged_ = stale;
  }

  // Brings the columns [first, first + Tile::columns), as far as they exist, into the tile. All threads of the block
  // call it with the same argument.
  ZINC_DEVICE void stage(uint32_t first) {
    if (staged_ == first) return;
    if (staged_ != nothing) __syncthreads();  // the last reader of the old stretch may still be at it
    fill(first);
    __syncthreads();
    staged_ = first;
  }

 private:
  ZINC_DEVICE void fill(uint32_t first) {
    // Column groups of 16 alternate between the two runs of a unit with this bit of their number.
    constexpr unsigned run_bit = Format::run_distance / run_columns;
    const uint32_t fours = min(columns_ - first, Tile::columns) / 4;
#pragma unroll
    for (unsigned v = 0; v < Tile::vectors; ++v) {
      // The trip count is the same for all threads because the sums below are warp-wide.
      for (uint32_t start = 0; start < fours; start += threads) {
        const uint32_t four = start + threadIdx.x;
        const bool present = four < fours;
        const float4 value = present ? source_.four(v, first + 4 * four) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const unsigned group = four / run_words;
        const unsigned run = group / run_bit % 2;
        const unsigned unit = group / (2 * run_bit) * run_bit + group % run_bit;
        if (present) tile.values[v][run_words * run + four % run_words][unit] = value;
        if constexpr (Format::has_minimum) {
          const float sum = warp_sum<run_words>((value.x + value.y) + (value.z + value.w));
          if (present && four % run_words == 0) tile.sums[v][run][unit] = sum;
        }
      }
    }
  }
};

}  // namespace zinc
