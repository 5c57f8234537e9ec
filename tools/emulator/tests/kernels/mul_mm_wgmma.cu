// The f32 matrix-matrix kernels by warpgroups, which their launch files choose for one architecture only.
#include "zinc/activation.cuh"
#include "zinc/mul_mm.cuh"
#include "zinc/mul_mm_q4k.h"
#include "zinc/mul_mm_q4k_gate_up_geglu.h"
#include "zinc/mul_mm_q4k_gate_up_swiglu.h"
#include "zinc/mul_mm_q4k_gate_up_swiglu_full.h"
#include "zinc/mul_mm_q5k.h"
#include "zinc/mul_mm_q6k.h"
#include "zinc/mul_mm_q6k_full.h"
#include "zinc/mul_mm_q8_0.h"
#include "zinc/quant/q4_k.cuh"
#include "zinc/quant/q5_k.cuh"
#include "zinc/quant/q6_k.cuh"
#include "zinc/quant/q8_0.cuh"

constexpr unsigned rows = 256;
constexpr unsigned tokens = 128;
constexpr unsigned small_tokens = 64;
constexpr unsigned threads = 384;
constexpr unsigned shared_bytes = 227 * 1024;

// An entry test_wgmma_<kernel>.
#define BY_WARPGROUPS(kernel, format)                                                                 \
  ZINC_KERNEL void test_wgmma_##kernel(const uint8_t* a, const float* b, float* d, kernel##_push p) { \
    using Tiles = zinc::FloatTiles<rows, tokens, 128, small_tokens, threads>;                         \
    zinc::mul_mm<zinc::format, Tiles, shared_bytes>(a, b, d, p);                                      \
  }                                                                                                   \
  ZINC_EMULATOR_ENTRY(test_wgmma_##kernel)
#define GATED_BY_WARPGROUPS(kernel, activation)                                                          \
  ZINC_KERNEL void test_wgmma_##kernel(const uint8_t* gate, const uint8_t* up, const float* b, float* d, \
                                       kernel##_push p) {                                                \
    using Tiles = zinc::FloatTiles<rows, tokens, 128, small_tokens, threads, 2>;                         \
    zinc::mul_mm_gate_up<zinc::Q4K, Tiles, zinc::activation, shared_bytes>(gate, up, b, d, p);           \
  }                                                                                                      \
  ZINC_EMULATOR_ENTRY(test_wgmma_##kernel)

BY_WARPGROUPS(mul_mm_q4k, Q4K)
BY_WARPGROUPS(mul_mm_q5k, Q5K)
BY_WARPGROUPS(mul_mm_q6k, Q6K)
BY_WARPGROUPS(mul_mm_q6k_full, Q6K)
BY_WARPGROUPS(mul_mm_q8_0, Q8_0)
GATED_BY_WARPGROUPS(mul_mm_q4k_gate_up_swiglu, SwiGlu)
GATED_BY_WARPGROUPS(mul_mm_q4k_gate_up_swiglu_full, SwiGlu)
GATED_BY_WARPGROUPS(mul_mm_q4k_gate_up_geglu, GeGlu)
