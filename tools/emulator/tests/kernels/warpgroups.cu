// What kernels with warps of different roles are made of: phase barriers, and products by warpgroups. tests/warpgroups.rs
// finds the lines marked with "line:" by their text.
#include "zinc/async_copy.cuh"
#include "zinc/phase_barrier.cuh"
#include "zinc/wgmma.cuh"

struct rounds_push {
  uint32_t rounds;
};

// Warp 0 fills a ring of three stages by copies, the other two warps empty it and add up what they find. In the middle
// of a round the lanes of a warp meet in a warp operation, and now and then all threads in a barrier of the block.
ZINC_KERNEL void test_phase_ring(const uint32_t* in, uint32_t* out, rounds_push p) {
  constexpr unsigned stages = 3;
  constexpr unsigned readers = 64;
  ZINC_SHARED(uint32_t[stages][32], ring);
  ZINC_SHARED(zinc::PhaseBarrier[stages], full);
  ZINC_SHARED(zinc::PhaseBarrier[stages], empty);
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < stages; ++s) {
      zinc::phase_make(full[s], 32);
      zinc::phase_make(empty[s], readers / 32);
    }
  }
  __syncthreads();
  const unsigned t = threadIdx.x;
  uint32_t sum = 0;
  for (uint32_t round = 0; round < p.rounds; ++round) {
    const unsigned s = round % stages;
    const uint32_t parity = round / stages % 2;
    if (t < 32) {
      // Nobody has to empty a new ring.
      zinc::phase_wait(empty[s], parity ^ 1);
      zinc::async_copy<4>(zinc::shared_place(&ring[s][t]), &in[round * 32 + t]);
      zinc::phase_arrive_after_copies(full[s]);
    } else {
      zinc::phase_wait(full[s], parity);
      const uint32_t mine = ring[s][31 - t % 32];
      sum += mine + __shfl_xor_sync(0xffffffffu, mine, 1);
      if (t % 32 == 0) zinc::phase_arrive(empty[s]);
    }
    if (round % 8 == 5) __syncthreads();
  }
  out[t] = sum;
}
ZINC_EMULATOR_ENTRY(test_phase_ring)

// One arrival of 64 is missing.
ZINC_KERNEL void bug_phase_never_ends(uint32_t* out, rounds_push) {
  ZINC_SHARED(zinc::PhaseBarrier, barrier);
  if (threadIdx.x == 0) zinc::phase_make(barrier, 64);
  __syncthreads();
  if (threadIdx.x != 40) zinc::phase_arrive(barrier);
  if (threadIdx.x < 32) {
    zinc::phase_wait(barrier, 0);  // line: endless phase
  } else if (threadIdx.x > 40) {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
ZINC_EMULATOR_ENTRY(bug_phase_never_ends)

ZINC_KERNEL void bug_phase_not_made(uint32_t* out, rounds_push) {
  ZINC_SHARED(zinc::PhaseBarrier, barrier);
  zinc::phase_arrive(barrier);  // line: nobody made it
  out[threadIdx.x] = 1;
}
ZINC_EMULATOR_ENTRY(bug_phase_not_made)

// d (+)= a b^T for 64 rows a and `tokens` rows b of 64 binary16 numbers, all row by row.
template <unsigned tokens>
ZINC_DEVICE void multiply(const uint32_t* a, const uint4* b, float* d, bool adds) {
  using Operand = zinc::WgmmaOperand<tokens>;
  ZINC_SHARED(Operand, operand);
  for (unsigned i = threadIdx.x; i < tokens * 8; i += zinc::warpgroup_threads) {
    operand.pieces[i / 8][Operand::place(i / 8, i % 8)] = b[i];
  }
  zinc::wgmma_written();
  __syncthreads();
  const unsigned group = threadIdx.x % 32 / 4;
  const unsigned part = threadIdx.x % 4;
  const unsigned row = threadIdx.x / 32 * 16 + group;
  float sums[tokens / 8][4];
  for (unsigned j = 0; j < tokens / 8; ++j) {
    for (unsigned i = 0; i < 4; ++i) sums[j][i] = d[(row + i / 2 * 8) * tokens + 8 * j + 2 * part + i % 2];
  }
  uint32_t rows[4][4];
  for (unsigned step = 0; step < 4; ++step) {
    for (unsigned i = 0; i < 4; ++i) rows[step][i] = a[(row + i % 2 * 8) * 32 + step * 8 + i / 2 * 4 + part];
  }
  zinc::wgmma_begin();
  for (unsigned step = 0; step < 4; ++step) {
    zinc::wgmma_half<tokens>(sums, rows[step], zinc::wgmma_columns(operand, 0, step), adds || step != 0);
  }
  zinc::wgmma_commit();
  zinc::wgmma_wait<0>();
  for (unsigned j = 0; j < tokens / 8; ++j) {
    for (unsigned i = 0; i < 4; ++i) d[(row + i / 2 * 8) * tokens + 8 * j + 2 * part + i % 2] = sums[j][i];
  }
}
struct adds_push {
  uint32_t adds;
};
ZINC_KERNEL void test_wgmma_64(const uint32_t* a, const uint4* b, float* d, adds_push p) {
  multiply<64>(a, b, d, p.adds != 0);
}
ZINC_EMULATOR_ENTRY(test_wgmma_64)
ZINC_KERNEL void test_wgmma_128(const uint32_t* a, const uint4* b, float* d, adds_push p) {
  multiply<128>(a, b, d, p.adds != 0);
}
ZINC_EMULATOR_ENTRY(test_wgmma_128)
