// Small kernels of the common kinds.
#include "zinc/platform.cuh"

struct size_push {
  uint32_t n;
};

// Thread i owns element i.
ZINC_KERNEL void __launch_bounds__(256) test_vadd(const float* a, const float* b, float* c, size_push p) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) c[i] = a[i] + b[i];
}
ZINC_EMULATOR_ENTRY(test_vadd)

// One block; thread 0 writes the sum of n integers. Warps reduce with shuffles, then through static shared memory.
ZINC_KERNEL void test_block_sum(const uint32_t* values, uint32_t* sum, size_push p) {
  ZINC_SHARED(uint32_t[32], partial);
  uint32_t mine = 0;
  for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) mine += values[i];
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += partial[warp];
    *sum = total;
  }
}
ZINC_EMULATOR_ENTRY(test_block_sum)

// Counts the values of 256 bins: first in the block's dynamic shared memory, then in global memory.
ZINC_KERNEL void test_histogram(const uint8_t* values, uint32_t* bins, size_push p) {
  ZINC_DYNAMIC_SHARED(uint32_t, mine);
  for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * blockDim.x) {
    atomicAdd(&mine[values[i]], 1u);
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&bins[bin], mine[bin]);
}
ZINC_EMULATOR_ENTRY(test_histogram)

// Every thread writes its indices where its place in the grid says.
ZINC_KERNEL void test_indices(uint4* out, size_push) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = make_uint4(blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16,
                                             threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16, thread % 32, warpSize);
}
ZINC_EMULATOR_ENTRY(test_indices)

// The last block to finish adds up what all blocks wrote (no block waits for another one).
ZINC_KERNEL void test_last_block(uint32_t* partial, uint32_t* finished, uint32_t* sum, size_push) {
  ZINC_SHARED(bool, last);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    uint32_t total = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) total += partial[block];
    *sum = total;
  }
}
ZINC_EMULATOR_ENTRY(test_last_block)

// Six rendezvous per thread: two barriers and four shuffles.
ZINC_KERNEL void test_speed(float* out, size_push) {
  ZINC_SHARED(float[256], tile);
  const unsigned t = threadIdx.x;
  tile[t] = static_cast<float>(t);
  __syncthreads();
  float value = tile[255 - t];
  for (int offset = 16; offset > 1; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  __syncthreads();
  out[blockIdx.x * 256 + t] = value;
}
ZINC_EMULATOR_ENTRY(test_speed)

// Copies through shared memory; the first output is what is there before the copy is waited for.
ZINC_KERNEL void test_async_copy(const uint32_t* in, uint32_t* early, uint32_t* late, size_push) {
  ZINC_SHARED(uint32_t[2][32], tile);
  const unsigned t = threadIdx.x;
  zinc_emulator::copy_async(&tile[0][t], &in[t], 4);
  zinc_emulator::copy_async_commit();
  zinc_emulator::copy_async(&tile[1][t], &in[32 + t], 2, 2);
  zinc_emulator::copy_async_commit();
  early[t] = tile[0][t];
  zinc_emulator::copy_async_wait(1);
  early[32 + t] = tile[1][t];
  zinc_emulator::copy_async_wait(0);
  __syncthreads();
  late[t] = tile[0][31 - t];
  late[32 + t] = tile[1][31 - t];
}
ZINC_EMULATOR_ENTRY(test_async_copy)
