// Generated from the catalog entry and the launch file of demo_scale; do not edit.
#pragma once
#include "zinc/platform.cuh"

struct demo_scale_push {
  uint32_t n;
  uint32_t x_offset;
  float factor;
  // launch counts
  uint32_t rows;
  // specialization values
  uint32_t wide;
};
static_assert(sizeof(demo_scale_push) == 4 * 5, "5 words of 4 bytes");

namespace demo_scale_tile {
#if ZINC_ARCH >= 120
constexpr unsigned rows_per_warp = 1;
constexpr unsigned warps = 8;
#elif ZINC_ARCH == 90 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr unsigned rows_per_warp = 2;
constexpr unsigned warps = 8;
#elif ZINC_ARCH >= 90
constexpr unsigned rows_per_warp = 1;
constexpr unsigned warps = 16;
#else
constexpr unsigned rows_per_warp = 1;
constexpr unsigned warps = 8;
#endif
}  // namespace demo_scale_tile
