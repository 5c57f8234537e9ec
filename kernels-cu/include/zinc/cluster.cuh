// Blocks that run together on neighbouring multiprocessors and read each other's shared memory (thread-block clusters,
// from compute capability 9.0 on). Elsewhere a block is its own cluster of one.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

constexpr unsigned max_cluster = 16;  // blocks

// The block's place in its cluster.
ZINC_DEVICE uint32_t cluster_rank() {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

// The number of blocks of the cluster.
ZINC_DEVICE uint32_t cluster_blocks() {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
#else
  return 1;
#endif
}

// A barrier of all threads of the cluster; what they wrote to shared memory before is visible to all of them after.
ZINC_DEVICE void cluster_barrier() {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

// The last barrier of a cluster: no block may end before the last read of its shared memory. It orders no writes.
ZINC_DEVICE void cluster_leave() {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n\t"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

// Where the block of the given rank has what this block has at `shared`, an address of its shared memory.
template <class T>
ZINC_DEVICE const T* cluster_peer(const T* shared, uint32_t rank) {
#if !defined(ZINC_EMULATOR) && ZINC_ARCH >= 90
  const T* peer;
  asm("mapa.u64 %0, %1, %2;" : "=l"(peer) : "l"(shared), "r"(rank));
  return peer;
#else
  return shared;
#endif
}

}  // namespace zinc
