// Kernels with a planted bug each. tests/bugs.rs finds the lines marked with "line:" by their text.
#include "zinc/platform.cuh"

struct bug_push {
  uint32_t where;
};

ZINC_KERNEL void bug_divergent_barrier(uint32_t* out, bug_push p) {
  if (threadIdx.x < p.where) {
    __syncthreads();  // line: low threads
  } else {
    __syncthreads();  // line: high threads
  }
  out[threadIdx.x] = 1;
}
ZINC_EMULATOR_ENTRY(bug_divergent_barrier)

ZINC_KERNEL void bug_barrier_after_exit(uint32_t* out, bug_push p) {
  if (threadIdx.x == p.where) return;
  __syncthreads();  // line: barrier after exit
  out[threadIdx.x] = 1;
}
ZINC_EMULATOR_ENTRY(bug_barrier_after_exit)

ZINC_KERNEL void bug_different_masks(uint32_t* out, bug_push) {
  const unsigned mask = threadIdx.x % 32 < 16 ? 0xffffffffu : 0xffff0000u | 1u;
  out[threadIdx.x] = __ballot_sync(mask, 1);
}
ZINC_EMULATOR_ENTRY(bug_different_masks)

ZINC_KERNEL void bug_different_operations(uint32_t* out, bug_push) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
  } else {
    __syncwarp();
  }
}
ZINC_EMULATOR_ENTRY(bug_different_operations)

ZINC_KERNEL void bug_not_in_mask(uint32_t* out, bug_push p) { out[threadIdx.x] = __ballot_sync(~(1u << p.where), 1); }
ZINC_EMULATOR_ENTRY(bug_not_in_mask)

ZINC_KERNEL void bug_warp_after_exit(uint32_t* out, bug_push p) {
  if (threadIdx.x == p.where) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}
ZINC_EMULATOR_ENTRY(bug_warp_after_exit)

ZINC_KERNEL void bug_warp_and_barrier(uint32_t* out, bug_push p) {
  if (threadIdx.x == p.where) __syncthreads();
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}
ZINC_EMULATOR_ENTRY(bug_warp_and_barrier)

ZINC_KERNEL void bug_shuffle_width(uint32_t* out, bug_push p) {
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1, static_cast<int>(p.where));
}
ZINC_EMULATOR_ENTRY(bug_shuffle_width)

// Writes one byte at a signed distance from the start.
ZINC_KERNEL void bug_global_overrun(uint8_t* out, bug_push p) { out[static_cast<int>(p.where)] = 1; }
ZINC_EMULATOR_ENTRY(bug_global_overrun)

ZINC_KERNEL void bug_global_read(const uint8_t* in, uint8_t* out, bug_push p) { *out = in[static_cast<int>(p.where)]; }
ZINC_EMULATOR_ENTRY(bug_global_read)

ZINC_KERNEL void bug_static_shared_overrun(uint32_t* out, bug_push p) {
  ZINC_SHARED(uint32_t[8], tile);
  uint32_t* const place = tile;
  if (blockIdx.x == 1 && threadIdx.x == 0) place[p.where] = 1;
  __syncthreads();
  out[threadIdx.x] = place[0];
}
ZINC_EMULATOR_ENTRY(bug_static_shared_overrun)

ZINC_KERNEL void bug_dynamic_shared_overrun(uint32_t* out, bug_push p) {
  ZINC_DYNAMIC_SHARED(uint8_t, tile);
  tile[p.where] = 1;
  out[threadIdx.x] = tile[0];
}
ZINC_EMULATOR_ENTRY(bug_dynamic_shared_overrun)

ZINC_KERNEL void bug_too_much_shared(uint32_t* out, bug_push) {
  ZINC_SHARED(uint32_t[60000], vast);
  vast[threadIdx.x] = 1;
  out[threadIdx.x] = vast[0];
}
ZINC_EMULATOR_ENTRY(bug_too_much_shared)

ZINC_KERNEL void bug_trap(uint32_t* out, bug_push p) {
  assert(threadIdx.x != p.where);  // line: assertion
  out[threadIdx.x] = 1;
}
ZINC_EMULATOR_ENTRY(bug_trap)

// Every thread reads its neighbour's value without a barrier.
ZINC_KERNEL void bug_race(uint32_t* out, bug_push) {
  ZINC_SHARED(uint32_t[64], tile);
  tile[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}
ZINC_EMULATOR_ENTRY(bug_race)

// Nobody writes the last element.
ZINC_KERNEL void bug_uninitialised(uint32_t* out, bug_push) {
  ZINC_SHARED(uint32_t[64], tile);
  if (threadIdx.x < 63) tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
ZINC_EMULATOR_ENTRY(bug_uninitialised)

// Blocks overwrite one another.
ZINC_KERNEL void bug_block_race(uint32_t* out, bug_push) { out[threadIdx.x] = blockIdx.x; }
ZINC_EMULATOR_ENTRY(bug_block_race)

// Lane 0 reads a lane that the block does not have.
ZINC_KERNEL void bug_missing_lane(uint32_t* out, bug_push) {
  out[threadIdx.x] = __shfl_down_sync(0xffffffffu, threadIdx.x, 4);
}
ZINC_EMULATOR_ENTRY(bug_missing_lane)

// Reads what the kernel before it writes, and only the first threads wait for that.
ZINC_KERNEL void bug_read_before_wait(const uint32_t* in, uint32_t* out, bug_push p) {
  if (threadIdx.x < p.where) zinc::wait_for_previous();
  out[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
}
ZINC_EMULATOR_ENTRY(bug_read_before_wait)
