// Matrix products by the four warps of a warpgroup, of operands in registers with operands in shared memory (wgmma, of
// sm_90a alone), and what they mean elsewhere: the same products by the instruction of a warp.
#pragma once

#include "zinc/mma.cuh"

namespace zinc {

// Whether this code is compiled for the architecture that has the instruction.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ZINC_WGMMA 1
#else
#define ZINC_WGMMA 0
#endif

constexpr unsigned warpgroup_threads = 128;

// An operand in shared memory: `rows` rows of 64 numbers of 16 bits. The eight 16-byte pieces of a row are exchanged by
// the last three bits of its number (the 128-byte swizzle of PTX ISA, "Asynchronous Warpgroup Level Matrix Shared
// Memory Layout"), so that neither those who write columns of pieces nor the instruction meet in a bank.
template <unsigned rows>
struct alignas(1024) WgmmaOperand {
  static_assert(rows % 8 == 0, "the pattern repeats every 8 rows");
  static constexpr unsigned columns = 64;
  uint4 pieces[rows][8];

  static ZINC_DEVICE unsigned place(unsigned row, unsigned piece) { return piece ^ (row % 8); }
};

// What the instruction calls a matrix descriptor: 16 columns of an operand from a multiple of 8 rows on.
struct WgmmaColumns {
#if ZINC_WGMMA
  uint64_t descriptor;
#else
  const uint4 (*rows)[8];
  unsigned piece;
#endif
};

// Columns 16 * step .. + 15 of the rows from `row`, a multiple of 8, on.
template <unsigned rows>
ZINC_DEVICE WgmmaColumns wgmma_columns(const WgmmaOperand<rows>& operand, unsigned row, unsigned step) {
#if ZINC_WGMMA
  // Bits 0 to 13: the address; 32 to 45: the distance of groups of eight rows; both in 16 bytes. 62 and 63: swizzle.
  constexpr uint64_t form = (uint64_t{1} << 62) | (uint64_t{1024 / 16} << 32);
  const uint32_t first = static_cast<uint32_t>(__cvta_generic_to_shared(&operand)) / 16;
  return {form | ((first | 1u << 16) + row * 8 + step * 2)};
#else
  return {operand.pieces + row, 2 * step};
#endif
}

// Makes what this thread has written to shared memory visible to the instruction; before the barrier that announces it.
ZINC_DEVICE void wgmma_written() {
#if ZINC_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Before the first product of a series, and wherever the warps have changed registers that its products use.
ZINC_DEVICE void wgmma_begin() {
#if ZINC_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Makes a group of the products since the last one.
ZINC_DEVICE void wgmma_commit() {
#if ZINC_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits for all groups but the `newest` last ones.
template <unsigned newest>
ZINC_DEVICE void wgmma_wait() {
#if ZINC_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(newest) : "memory");
#endif
}

// The same, before `sums` of a group that is waited for are read: nothing but its sums is ordered by it.
template <unsigned newest, unsigned count>
ZINC_DEVICE void wgmma_wait_for(float (&sums)[count][4]) {
#if ZINC_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(newest));
#pragma unroll
  for (unsigned j = 0; j < count; ++j) {
    asm volatile("" : "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3]));
  }
#endif
}

// A warpgroup that needs many or few registers says so; together they have what the launch gives every thread. Its
// four warps call it together. Multiples of 8, 24 to 256.
template <unsigned registers>
ZINC_DEVICE void take_registers() {
#if ZINC_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <unsigned registers>
ZINC_DEVICE void give_registers() {
#if ZINC_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

// sums (+)= A B^T for 64 rows A, 16 of each warp of the warpgroup, and `tokens` rows B of shared memory, 16 columns of
// binary16 or bfloat16 numbers, sums f32; `adds` says whether to what is there. The warpgroup calls it together, and
// touches neither sums nor a before the group of the product has been waited for. A and each sums[j], of tokens 8 j ..
// 8 j + 7, lie in the warp's registers as mma_half has them.
template <unsigned tokens, class Number = Binary16>
ZINC_DEVICE void wgmma_half(float (&sums)[tokens / 8][4], const uint32_t (&a)[4], WgmmaColumns b, bool adds) {
#if ZINC_WGMMA
  static_assert(tokens == 32 || tokens == 64 || tokens == 128 || tokens == 256,
                "what is needed of what the instruction has");
#define ZINC_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define ZINC_PRODUCT(type)                                                                                             \
  asm volatile(                                                                                                        \
      "{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, %37, 0;\n\t"                                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                      \
      " {"                                                                                                             \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "                               \
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                           \
      "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n\t}"                                                              \
      : ZINC_SUMS(0), ZINC_SUMS(1), ZINC_SUMS(2), ZINC_SUMS(3), ZINC_SUMS(4), ZINC_SUMS(5), ZINC_SUMS(6), ZINC_SUMS(7) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"(static_cast<uint32_t>(adds)))
  static_assert(tokens == 64 || !is_bfloat<Number>, "what is needed of what the instruction has");
  if constexpr (tokens == 32) {
    asm volatile(
        "{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, %21, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n\t}"
        : ZINC_SUMS(0), ZINC_SUMS(1), ZINC_SUMS(2), ZINC_SUMS(3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"(static_cast<uint32_t>(adds)));
  } else if constexpr (tokens == 64) {
    if constexpr (is_bfloat<Number>) {
      ZINC_PRODUCT("bf16");
    } else {
      ZINC_PRODUCT("f16");
    }
  } else if constexpr (tokens == 128) {
    asm volatile(
        "{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, %69, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n\t}"
        : ZINC_SUMS(0), ZINC_SUMS(1), ZINC_SUMS(2), ZINC_SUMS(3), ZINC_SUMS(4), ZINC_SUMS(5), ZINC_SUMS(6),
          ZINC_SUMS(7), ZINC_SUMS(8), ZINC_SUMS(9), ZINC_SUMS(10), ZINC_SUMS(11), ZINC_SUMS(12), ZINC_SUMS(13),
          ZINC_SUMS(14), ZINC_SUMS(15)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"(static_cast<uint32_t>(adds)));
  } else {
    asm volatile(
        "{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, %133, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, {%128, %129, %130, %131}, %132, adds, 1, 1, 0;\n\t}"
        : ZINC_SUMS(0), ZINC_SUMS(1), ZINC_SUMS(2), ZINC_SUMS(3), ZINC_SUMS(4), ZINC_SUMS(5), ZINC_SUMS(6),
          ZINC_SUMS(7), ZINC_SUMS(8), ZINC_SUMS(9), ZINC_SUMS(10), ZINC_SUMS(11), ZINC_SUMS(12), ZINC_SUMS(13),
          ZINC_SUMS(14), ZINC_SUMS(15), ZINC_SUMS(16), ZINC_SUMS(17), ZINC_SUMS(18), ZINC_SUMS(19), ZINC_SUMS(20),
          ZINC_SUMS(21), ZINC_SUMS(22), ZINC_SUMS(23), ZINC_SUMS(24), ZINC_SUMS(25), ZINC_SUMS(26), ZINC_SUMS(27),
          ZINC_SUMS(28), ZINC_SUMS(29), ZINC_SUMS(30), ZINC_SUMS(31)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"(static_cast<uint32_t>(adds)));
  }
#undef ZINC_PRODUCT
#undef ZINC_SUMS
#else
#pragma unroll
  for (unsigned j = 0; j < tokens / 8; ++j) {
    const unsigned row = 8 * j + lane_id() / 4;
    uint32_t words[2];
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const uint4& piece = b.rows[row][WgmmaOperand<tokens>::place(row, b.piece + i)];
      words[i] = reinterpret_cast<const uint32_t*>(&piece)[lane_id() % 4];
    }
    if (adds) {
      mma_half<Number>(sums[j], a, words);
    } else {
      mma_half<Number>(sums[j], a, words, {0.0f, 0.0f, 0.0f, 0.0f});
    }
  }
#endif
}

// wgmma_half of 80 rows of B, always added to what is there.
ZINC_DEVICE void wgmma_half_80(float (&sums)[10][4], const uint32_t (&a)[4], WgmmaColumns b) {
#if ZINC_WGMMA
#define ZINC_SUMS(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
      "}, {%40, %41, %42, %43}, %44, 1, 1, 1, 0;"
      : ZINC_SUMS(0), ZINC_SUMS(1), ZINC_SUMS(2), ZINC_SUMS(3), ZINC_SUMS(4), ZINC_SUMS(5), ZINC_SUMS(6), ZINC_SUMS(7),
        ZINC_SUMS(8), ZINC_SUMS(9)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor));
#undef ZINC_SUMS
#else
  wgmma_half<80>(sums, a, b, true);
#endif
}

}  // namespace zinc
