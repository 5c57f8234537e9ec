// Products of small q8_0 matrices with one vector, whose rows come to shared memory whole: asked for at once, and
// before the kernel before this one has ended, which must not write them. From compute capability 9.0 on.
//
// A block has up to four tiles of 16 rows, a grid apart; each of its warps takes 256 of 2048 columns. A lane takes
// twice 32 columns of rows lane / 4 and 8 more, as binary16 numbers, which are exact; see split_vector.cuh for the
// vector.
#pragma once

#include "zinc/dmmv_few.cuh"
#include "zinc/halves_sums.cuh"
#include "zinc/phase_barrier.cuh"
#include "zinc/quant/q8_0.cuh"
#include "zinc/quant/staged_row.cuh"
#include "zinc/shared_address.cuh"
#include "zinc/split_vector.cuh"

namespace zinc {

constexpr unsigned copied_warps = 8;
constexpr unsigned copied_columns = copied_warps * step_columns;  // at a time

// Whether a matrix that is neither tiny nor more than `few` weights, and lies at `offset`, is multiplied this way.
// Launch files say the same.
ZINC_DEVICE bool is_copied(uint32_t m, uint32_t k, uint32_t offset, uint32_t columns, uint32_t tiny, uint32_t few) {
  const uint64_t weights = uint64_t{m} * k;
  return k % step_columns == 0 && offset % 16 == 0 && k <= columns && weights > tiny && weights <= few;
}

// The eight blocks of 34 bytes of a step as lanes read them: five times eight bytes around a block, which begins
// 2 * (block % 4) bytes after them. Rows are a multiple of 16 bytes apart and not of 32: of four neighbouring rows,
// what the lanes read lies in all banks.
struct CopiedQ8_0 {
  static constexpr bool has_minimum = false;
  static constexpr bool rotates = true;
  static constexpr unsigned step_bytes = step_columns / Q8_0::block_columns * Q8_0::block_bytes;

  static ZINC_DEVICE unsigned block(unsigned part, unsigned i) { return part % 2 * 4 + part / 2 * 2 + i; }
  static ZINC_DEVICE bool rotated(unsigned block) { return block % 2 == 0; }
  static ZINC_DEVICE unsigned place(unsigned block, unsigned word) {
    return block % 4 < 2 || word == 7 ? word : (word + 1) % 7;
  }
  static ZINC_DEVICE uint32_t pitch(uint32_t row_bytes) { return row_bytes | 16u; }

  uint32_t words[8];
  uint32_t factor;

  // The lane's i-th block of the step at `row`.
  template <unsigned i>
  ZINC_DEVICE void load(SharedAddress row) {
    constexpr unsigned eight_bytes = 5;
    const unsigned part = lane_id() % 4;
    const SharedAddress from = row + (part % 2 * 136 + part / 2 * 64 + i * 32);
    uint32_t w[2 * eight_bytes];
#pragma unroll
    for (unsigned j = 0; j < eight_bytes; ++j) {
      const uint2 two = (from + 8 * j).load2();
      w[2 * j] = two.x;
      w[2 * j + 1] = two.y;
    }
    // The block's pairs of bytes, in the order of the words that have them, and what is left of the last word after.
    const bool early = part < 2;
    const uint32_t before = early ? w[0] : w[1];
    const uint32_t after = early ? w[8] : w[9];
    words[0] = early ? w[1] : w[8];
#pragma unroll
    for (unsigned j = 1; j < 7; ++j) words[j] = w[j + 1];
    words[7] = i == 0 ? __byte_perm(after, before, 0x7610u) : after;
    factor = i == 0 ? before : before >> 16;
  }

  // Quants 0 and 2 of a word, or 1 and 3.
  ZINC_DEVICE uint32_t halves(unsigned word, unsigned odd) const {
    constexpr uint32_t one = 0x3C003C00u;
    constexpr uint32_t less = 0xE480E480u;  // -1152
    // As the last bits of 1024, with 128 more.
    const uint32_t sums = __byte_perm(words[word] ^ 0x80808080u, 0x64646464u, odd != 0 ? 0x4341u : 0x4240u);
    return exact_halves(sums, one, less);
  }
};

// How a block goes through its rows: tiles of 16 rows, each in `chunks` chunks of columns. `room` chunks have room, and
// one more is in registers: all or nearly all that the block needs is on its way before the vector is there, and
// another kernel's block finds room beside it.
template <unsigned chunks_>
struct CopiedWork {
  static constexpr unsigned chunks = chunks_;
  static constexpr unsigned room = chunks == 1 ? 3 : 2;
  static constexpr unsigned chunk_bytes = copied_warps * CopiedQ8_0::step_bytes;
  static constexpr unsigned most_tiles = 4;

  const uint8_t* matrix;
  uint32_t m;
  uint32_t row_size;
  uint8_t* rows;
  PhaseBarrier* come;
  uint32_t pitch;
  uint32_t tiles = 0;

  ZINC_DEVICE CopiedWork(const uint8_t* matrix, uint32_t m, uint32_t steps, uint8_t* rows, PhaseBarrier* come)
      : matrix(matrix), m(m), row_size(steps * CopiedQ8_0::step_bytes), rows(rows), come(come) {
    pitch = CopiedQ8_0::pitch(min(row_size, chunk_bytes));
#pragma unroll
    for (unsigned i = 0; i < most_tiles; ++i) tiles += HalvesSums<1>::first_row(i) < m ? 1 : 0;
  }

  ZINC_DEVICE uint32_t count() const { return tiles * chunks; }
  ZINC_DEVICE uint8_t* place(uint32_t number) const { return rows + number % room * (halves_rows * pitch); }
  // By all warps of the block.
  ZINC_DEVICE void ask(uint32_t number) const {
    if (number >= count() || lane_id() != 0) return;
    const uint32_t at = number % chunks * chunk_bytes;
    const uint32_t bytes = min(row_size - at, chunk_bytes);
    const uint32_t first = HalvesSums<1>::first_row(number / chunks);
    uint8_t* const to = place(number);
#pragma unroll 2
    for (uint32_t r = warp_id(); r < halves_rows; r += block_warps()) {
      phase_arrive_with_copy(come[number % room], to + r * pitch,
                             matrix + uint64_t{min(first + r, m - 1)} * row_size + at, bytes);
    }
  }
  ZINC_DEVICE void wait(uint32_t number) const { phase_wait(come[number % room], number / room % 2); }
};

// The columns of a chunk that a warp multiplies.
struct CopiedWeights {
  CopiedQ8_0 blocks[2][2];  // [of the lane][row]

  ZINC_DEVICE void load(SharedAddress lane_row, uint32_t pitch) {
    for_constants<2>([&](auto i) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) blocks[i.index][h].template load<i.index>(lane_row + h * 8 * pitch);
    });
  }

  ZINC_DEVICE void add_to(float (&sum)[2], const SplitStep<CopiedQ8_0>& vector) const {
    using Step = SplitStep<CopiedQ8_0>;
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      uint32_t columns[Step::words][2];
      vector.load(columns, i);
      const float scale = vector.scale[CopiedQ8_0::block(lane_id() % 4, i)];
      float dot[2][4] = {};
#pragma unroll
      for (unsigned w = 0; w < Step::words; ++w) {
        const uint32_t a[4] = {blocks[i][0].halves(w, 0), blocks[i][1].halves(w, 0), blocks[i][0].halves(w, 1),
                               blocks[i][1].halves(w, 1)};
        mma_half(dot[w % 2], a, columns[w]);
      }
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const float both = (dot[0][2 * h] + dot[1][2 * h]) + (dot[0][2 * h + 1] + dot[1][2 * h + 1]);
        sum[h] = fmaf(half_to_float(static_cast<uint16_t>(blocks[i][h].factor)) * scale, both, sum[h]);
      }
    }
  }
};

// y as finish(row, 0, dots) makes it.
template <unsigned chunks, class Finish>
ZINC_DEVICE void matvec_copied(const uint8_t* matrix, uint32_t m, uint32_t k, const float* x, Finish finish) {
  using Work = CopiedWork<chunks>;
  using Step = SplitStep<CopiedQ8_0>;
  using Sums = HalvesSums<1>;
  ZINC_DYNAMIC_SHARED(uint8_t, shared);
  const uint32_t steps = k / step_columns;
  Step* const vector = reinterpret_cast<Step*>(shared);
  PhaseBarrier* const come = reinterpret_cast<PhaseBarrier*>(shared + steps * sizeof(Step));
  constexpr unsigned barrier_bytes = 32;
  static_assert(Work::room * sizeof(PhaseBarrier) <= barrier_bytes);
  const Work work(matrix, m, steps, shared + steps * sizeof(Step) + barrier_bytes, come);
  if (threadIdx.x < Work::room) phase_make(come[threadIdx.x], halves_rows);
  __syncthreads();
#pragma unroll
  for (unsigned number = 0; number < Work::room; ++number) work.ask(number);
  const unsigned warp = warp_id();
  const SharedAddress lane_rows =
      SharedAddress(work.rows) + (lane_id() / 4 * work.pitch + warp * CopiedQ8_0::step_bytes);
  const uint32_t count = work.count();
  CopiedWeights weights;
  // Takes a chunk to registers, whose room is free then. The last chunk of a row is not for all warps.
  const auto take = [&](uint32_t number) {
    work.wait(number);
    if (number % chunks * copied_warps + warp < steps) {
      weights.load(lane_rows + number % Work::room * (halves_rows * work.pitch), work.pitch);
    }
    if (number + Work::room < count) {
      __syncthreads();
      work.ask(number + Work::room);
    }
  };
  // Only what frees room that is needed is taken before the vector is asked for.
  const bool early = count > Work::room;
  if (early) take(0);
  wait_for_previous();
  float4 columns[chunks][2];
#pragma unroll
  for (unsigned i = 0; i < chunks; ++i) {
    const uint32_t step = min(i * copied_warps + warp, steps - 1);
    const float4* const from = reinterpret_cast<const float4*>(x + step * step_columns) + 2 * lane_id();
    columns[i][0] = __ldg(from);
    columns[i][1] = __ldg(from + 1);
  }
  bool unfit = false;
#pragma unroll
  for (unsigned i = 0; i < chunks; ++i) {
    const uint32_t step = i * copied_warps + warp;
    if (step < steps) unfit = vector[step].put(columns[i][0], columns[i][1]) || unfit;
  }
  __syncwarp();
  if (!early) take(0);
  float sums[Work::most_tiles] = {};
  float sum[2] = {};
#pragma unroll 1
  for (uint32_t number = 0;;) {
    const uint32_t step = number % chunks * copied_warps + warp;
    if (step < steps) weights.add_to(sum, vector[step]);
    if (number % chunks == chunks - 1) {
      const float of_quad = Sums::of_quad(sum);
#pragma unroll
      for (unsigned i = 0; i < Work::most_tiles; ++i) sums[i] = number / chunks == i ? of_quad : sums[i];
      sum[0] = 0.0f;
      sum[1] = 0.0f;
    }
    if (++number == count) break;
    take(number);
  }
  // The warp is done with its part of the vector.
  __syncwarp();
  const Sums all{reinterpret_cast<float*>(shared), sizeof(Step) / sizeof(float)};
#pragma unroll
  for (unsigned i = 0; i < Work::most_tiles; ++i) all.put(i, sums[i]);
  all.template finish<Q8_0, copied_warps>(work.tiles, unfit, FewMatrices<1>{{matrix}, x, k}, m, work.row_size, finish);
}

}  // namespace zinc
