// The matrix-matrix kernels with tokens in binary16 by warpgroups, which their launch files choose for one architecture
// only.
#include "zinc/mul_mm_f16.cuh"
#include "zinc/mul_mm_q4k_f16.h"
#include "zinc/mul_mm_q5k_f16.h"
#include "zinc/mul_mm_q6k_f16.h"
#include "zinc/mul_mm_q8_0_f16.h"

// An entry test_wgmma_<kernel>: small tiles where there are few, so that cases take both forms.
#define BY_WARPGROUPS(kernel, format)                                                                    \
  ZINC_KERNEL void test_wgmma_##kernel(const uint8_t* a, const uint8_t* h, const float* scale, float* d, \
                                       kernel##_push p) {                                                \
    using Tiles = zinc::F16Tiles<128, 256, 64, 2, 384>;                                                  \
    zinc::mul_mm_f16<zinc::format, Tiles, 227 * 1024>(a, h, scale, d, p);                                \
  }                                                                                                      \
  ZINC_EMULATOR_ENTRY(test_wgmma_##kernel)

BY_WARPGROUPS(mul_mm_q4k_f16, Q4K)
BY_WARPGROUPS(mul_mm_q5k_f16, Q5K)
BY_WARPGROUPS(mul_mm_q6k_f16, Q6K)
BY_WARPGROUPS(mul_mm_q8_0_f16, Q8_0)
