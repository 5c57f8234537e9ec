// The int8 matrix-matrix kernels in all forms of their integer sums, and the instruction that one form uses.
#include "zinc/mul_mm_int8.cuh"
#include "zinc/mul_mm_q4k_full_dp4a.h"
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a.h"
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8.h"
#include "zinc/mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1.h"
#include "zinc/mul_mm_q5k_full_dp4a.h"
#include "zinc/mul_mm_q6k_full_dp4a.h"
#include "zinc/mul_mm_q6k_full_dp4a_q8_1.h"
#include "zinc/mul_mm_q8_0_full_dp4a.h"

struct no_push {
  uint32_t unused;
};

// sums += A B^T for 16 rows of A and 8 of B, by one warp.
template <unsigned columns>
ZINC_DEVICE void multiply(const uint32_t* a, const uint32_t* b, int32_t* sums) {
  const unsigned group = threadIdx.x / 4;
  const unsigned part = threadIdx.x % 4;
  constexpr unsigned words = columns / 4;
  uint32_t rows[columns / 8];
  uint32_t tokens[columns / 16];
  for (unsigned j = 0; j < columns / 16; ++j) {
    for (unsigned h = 0; h < 2; ++h) rows[2 * j + h] = a[(group + 8 * h) * words + 4 * j + part];
    tokens[j] = b[group * words + 4 * j + part];
  }
  int32_t mine[4];
  for (unsigned i = 0; i < 4; ++i) mine[i] = sums[(group + i / 2 * 8) * 8 + 2 * part + i % 2];
  zinc::mma_int8<columns>(mine, rows, tokens);
  for (unsigned i = 0; i < 4; ++i) sums[(group + i / 2 * 8) * 8 + 2 * part + i % 2] = mine[i];
}
ZINC_KERNEL void test_mma_int8_16(const uint32_t* a, const uint32_t* b, int32_t* sums, no_push) {
  multiply<16>(a, b, sums);
}
ZINC_EMULATOR_ENTRY(test_mma_int8_16)
ZINC_KERNEL void test_mma_int8_32(const uint32_t* a, const uint32_t* b, int32_t* sums, no_push) {
  multiply<32>(a, b, sums);
}
ZINC_EMULATOR_ENTRY(test_mma_int8_32)

// Enough for the tile of any form.
constexpr unsigned shared_bytes = 190000;

// Entries test_dp4a_<kernel> and test_mma_<kernel> that run `statement` with the kernel's tiles as Tiles.
#define IN_FORM(form, kernel, parameters, statement)                                                         \
  ZINC_KERNEL void test_##form##_##kernel parameters {                                                       \
    namespace tile = kernel##_tile;                                                                          \
    using Tiles = zinc::Int8Tiles<tile::rows, tile::tokens, tile::small_rows, tile::small_tokens, tile::few, \
                                  tile::threads, zinc::DotForm::form>;                                       \
    statement;                                                                                               \
  }                                                                                                          \
  ZINC_EMULATOR_ENTRY(test_##form##_##kernel)
#define UNPACKED(...) __VA_ARGS__
// The entry test_wgmma_<kernel>: tiles of 64 rows of all matrices together and 256 tokens, or 128 where there is one.
#define IN_WGMMA_FORM(kernel, matrices, bringers, parameters, statement)                                         \
  ZINC_KERNEL void test_wgmma_##kernel(UNPACKED parameters, kernel##_push p) {                                   \
    constexpr unsigned threads = (2 + (bringers)) * zinc::warpgroup_threads;                                     \
    using Tiles = zinc::Int8Tiles<64 / (matrices), 256, 64 / (matrices), 128, 2, threads, zinc::DotForm::wgmma>; \
    UNPACKED statement;                                                                                          \
  }                                                                                                              \
  ZINC_EMULATOR_ENTRY(test_wgmma_##kernel)
#define IN_ALL_FORMS(kernel, matrices, bringers, parameters, statement)             \
  IN_FORM(dp4a, kernel, (UNPACKED parameters, kernel##_push p), UNPACKED statement) \
  IN_FORM(mma, kernel, (UNPACKED parameters, kernel##_push p), UNPACKED statement)  \
  IN_WGMMA_FORM(kernel, matrices, bringers, parameters, statement)

#define PRODUCT (const uint8_t* a, const uint32_t* b, const float* scales, float* d)
#define GATED (const uint8_t* gate, const uint8_t* up, const uint32_t* b, const float* scales, float* d)
#define REQUANTIZED \
  (const uint8_t* gate, const uint8_t* up, const uint32_t* b, const float* scales, uint32_t* d_packed, float* d_scales)

IN_ALL_FORMS(mul_mm_q4k_full_dp4a, 1, 1, PRODUCT,
             (zinc::mul_mm_int8<zinc::Q4K, Tiles, zinc::ScaleSumPairs, shared_bytes>(a, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q5k_full_dp4a, 1, 1, PRODUCT,
             (zinc::mul_mm_int8<zinc::Q5K, Tiles, zinc::ScaleSumPairs, shared_bytes>(a, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q6k_full_dp4a, 1, 2, PRODUCT,
             (zinc::mul_mm_int8<zinc::Q6K, Tiles, zinc::SingleScales, shared_bytes>(a, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q6k_full_dp4a_q8_1, 1, 2, PRODUCT,
             (zinc::mul_mm_int8<zinc::Q6K, Tiles, zinc::ScaleSumPairs, shared_bytes>(a, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q8_0_full_dp4a, 1, 1, PRODUCT,
             (zinc::mul_mm_int8<zinc::Q8_0, Tiles, zinc::SingleScales, shared_bytes>(a, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q4k_gate_up_swiglu_full_dp4a, 2, 1, GATED,
             (zinc::mul_mm_int8_swiglu<zinc::Q4K, Tiles, shared_bytes>(gate, up, b, scales, d, p)))
IN_ALL_FORMS(mul_mm_q4k_gate_up_swiglu_full_dp4a_q8, 2, 1, REQUANTIZED,
             (zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Tiles, zinc::SingleScales, shared_bytes>(gate, up, b,
                                                                                                       scales, d_packed,
                                                                                                       d_scales, p)))
IN_ALL_FORMS(mul_mm_q4k_gate_up_swiglu_full_dp4a_q8_1, 2, 1, REQUANTIZED,
             (zinc::mul_mm_int8_swiglu_requantized<zinc::Q4K, Tiles, zinc::ScaleSumPairs, shared_bytes>(
                 gate, up, b, scales, d_packed, d_scales, p)))
