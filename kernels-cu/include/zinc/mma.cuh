// Wrappers of the tensor cores' matrix instructions, and what they mean without them.
#pragma once

#include "zinc/half.cuh"
#include "zinc/warp.cuh"

namespace zinc {

#ifdef ZINC_EMULATOR
template <unsigned columns, class Row>
struct MmaInt8Lane {
  uint32_t a[columns / 8];
  uint32_t b[columns / 16];
  int32_t sums[4];
};

template <unsigned columns, class Row>
inline void run_mma_int8(::zinc_emulator::Lanes& lanes) {
  using Lane = MmaInt8Lane<columns, Row>;
  Row a[16][columns];
  int8_t b[8][columns];
  // What a lane that does not exist would have held is undefined.
  memset(a, static_cast<int>(lanes.poison & 0xFFu), sizeof a);
  memset(b, static_cast<int>(lanes.poison & 0xFFu), sizeof b);
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    const Lane& from = *static_cast<const Lane*>(lanes.args[lane]);
    for (unsigned i = 0; i < columns / 8; ++i)
      memcpy(&a[lane / 4 + i % 2 * 8][lane % 4 * 4 + i / 2 * 16], &from.a[i], 4);
    for (unsigned i = 0; i < columns / 16; ++i) memcpy(&b[lane / 4][lane % 4 * 4 + i * 16], &from.b[i], 4);
  }
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    Lane& to = *static_cast<Lane*>(lanes.args[lane]);
    for (unsigned i = 0; i < 4; ++i) {
      const Row* const row = a[lane / 4 + i / 2 * 8];
      const int8_t* const token = b[lane % 4 * 2 + i % 2];
      uint32_t sum = static_cast<uint32_t>(to.sums[i]);
      for (unsigned c = 0; c < columns; ++c) sum += static_cast<uint32_t>(row[c] * token[c]);
      to.sums[i] = static_cast<int32_t>(sum);
    }
  }
}

template <unsigned columns, class Row>
inline constexpr ::zinc_emulator::Collective mma_int8_collective = {"mma.sync", run_mma_int8<columns, Row>};
#endif

// sums = start + A B^T for 16 rows A and 8 tokens B of 16 or 32 bytes, exact up to the wrap of 32 bits. B is signed, A
// is what Row says. All lanes of a warp call it together. It is mma.sync.m16n8k16 or m16n8k32 (PTX ISA, "Matrix
// Fragments for mma.m16n8k16 with integer type" and "for mma.m16n8k32"), from compute capability 8.0 on. With group =
// lane / 4 and part = lane % 4, a lane holds
//   a[2 j + h]      columns 16 j + 4 part .. + 3 of row group + 8 h, the lowest column in the least significant byte
//   b[j]            the same columns of token group
//   sums[2 h + e]   row group + 8 h of token 2 part + e
// The columns may be in any order, if A and B have the same.
template <unsigned columns, class Row = int8_t>
ZINC_DEVICE void mma_int8(int32_t (&sums)[4], const uint32_t (&a)[columns / 8], const uint32_t (&b)[columns / 16],
                          const int32_t (&start)[4]) {
  static_assert(columns == 16 || columns == 32, "the instruction has these shapes");
  constexpr bool is_signed = static_cast<Row>(-1) < 0;
  static_assert(sizeof(Row) == 1 && (is_signed || columns == 32), "what is needed of what the instruction has");
#ifdef ZINC_EMULATOR
  MmaInt8Lane<columns, Row> lane;
  memcpy(lane.a, a, sizeof a);
  memcpy(lane.b, b, sizeof b);
  memcpy(lane.sums, start, sizeof sums);
  ::zinc_emulator::warp_collective(mma_int8_collective<columns, Row>, full_warp, lane, __FILE__, __LINE__);
  memcpy(sums, lane.sums, sizeof sums);
#else
  if constexpr (columns == 16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(start[0]), "r"(start[1]), "r"(start[2]), "r"(start[3]));
  } else if constexpr (is_signed) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start[0]), "r"(start[1]), "r"(start[2]),
          "r"(start[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start[0]), "r"(start[1]), "r"(start[2]),
          "r"(start[3]));
  }
#endif
}

// The same added to what is there.
template <unsigned columns, class Row = int8_t>
ZINC_DEVICE void mma_int8(int32_t (&sums)[4], const uint32_t (&a)[columns / 8], const uint32_t (&b)[columns / 16]) {
  const int32_t start[4] = {sums[0], sums[1], sums[2], sums[3]};
  mma_int8<columns, Row>(sums, a, b, start);
}

#ifdef ZINC_EMULATOR
struct MmaTf32Lane {
  uint32_t a[4];
  uint32_t b[2];
  float sums[4];
};

inline void run_mma_tf32(::zinc_emulator::Lanes& lanes) {
  const auto tf32 = [](uint32_t bits) { return __uint_as_float(bits & 0xffffe000u); };
  float a[16][8];
  float b[8][8];
  // What a lane that does not exist would have held is undefined.
  memset(a, static_cast<int>(lanes.poison & 0xFFu), sizeof a);
  memset(b, static_cast<int>(lanes.poison & 0xFFu), sizeof b);
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    const MmaTf32Lane& from = *static_cast<const MmaTf32Lane*>(lanes.args[lane]);
    for (unsigned i = 0; i < 4; ++i) a[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = tf32(from.a[i]);
    for (unsigned i = 0; i < 2; ++i) b[lane / 4][lane % 4 + i * 4] = tf32(from.b[i]);
  }
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    MmaTf32Lane& to = *static_cast<MmaTf32Lane*>(lanes.args[lane]);
    for (unsigned i = 0; i < 4; ++i) {
      const float* const row = a[lane / 4 + i / 2 * 8];
      const float* const column = b[lane % 4 * 2 + i % 2];
      double sum = to.sums[i];
      for (unsigned c = 0; c < 8; ++c) sum += static_cast<double>(row[c]) * column[c];
      to.sums[i] = static_cast<float>(sum);
    }
  }
}

inline constexpr ::zinc_emulator::Collective mma_tf32_collective = {"mma.sync", run_mma_tf32};
#endif

// sums += A B for 16 x 8 numbers A and 8 x 8 numbers B of tf32, f32 without the last 13 bits, which are ignored. All
// lanes of a warp call it together. It is mma.sync.m16n8k8 (PTX ISA, "Matrix Fragments for mma.m16n8k8"), from compute
// capability 8.0 on. With group = lane / 4 and part = lane % 4, a lane holds
//   a[2 j + h]      column part + 4 j of row group + 8 h of A
//   b[j]            row part + 4 j of column group of B
//   sums[2 h + e]   row group + 8 h, column 2 part + e
ZINC_DEVICE void mma_tf32(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef ZINC_EMULATOR
  MmaTf32Lane lane;
  memcpy(lane.a, a, sizeof a);
  memcpy(lane.b, b, sizeof b);
  memcpy(lane.sums, sums, sizeof sums);
  ::zinc_emulator::warp_collective(mma_tf32_collective, full_warp, lane, __FILE__, __LINE__);
  memcpy(sums, lane.sums, sizeof sums);
#elif ZINC_ARCH >= 80
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#ifdef ZINC_EMULATOR
struct MmaHalfLane {
  uint32_t a[4];
  uint32_t b[2];
  float sums[4];
};

template <class Number>
inline void run_mma_half(::zinc_emulator::Lanes& lanes) {
  constexpr unsigned columns = 16;
  uint16_t a[16][columns];
  uint16_t b[8][columns];
  memset(a, static_cast<int>(lanes.poison & 0xFFu), sizeof a);
  memset(b, static_cast<int>(lanes.poison & 0xFFu), sizeof b);
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    const MmaHalfLane& from = *static_cast<const MmaHalfLane*>(lanes.args[lane]);
    for (unsigned i = 0; i < 4; ++i) memcpy(&a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8], &from.a[i], 4);
    for (unsigned i = 0; i < 2; ++i) memcpy(&b[lane / 4][lane % 4 * 2 + i * 8], &from.b[i], 4);
  }
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    MmaHalfLane& to = *static_cast<MmaHalfLane*>(lanes.args[lane]);
    for (unsigned i = 0; i < 4; ++i) {
      const uint16_t* const row = a[lane / 4 + i / 2 * 8];
      const uint16_t* const token = b[lane % 4 * 2 + i % 2];
      float sum = to.sums[i];
      for (unsigned c = 0; c < columns; ++c) sum += Number::value(row[c]) * Number::value(token[c]);
      to.sums[i] = sum;
    }
  }
}

template <class Number>
inline constexpr ::zinc_emulator::Collective mma_half_collective = {"mma.sync", run_mma_half<Number>};
#endif

// sums = start + A B^T for 16 rows A and 8 tokens B of 16 binary16 numbers, with f32 sums; the products are exact, how
// the sum is rounded is the instruction's own. All lanes of a warp call it together. It is mma.sync.m16n8k16 (PTX ISA,
// "Matrix Fragments for mma.m16n8k16 with floating point type"), before compute capability 8.0 two of mma.sync.m16n8k8.
// With group = lane / 4 and part = lane % 4, a lane holds
//   a[2 j + h]      columns 8 j + 2 part and + 1 of row group + 8 h, the lower column in the lower half
//   b[j]            the same columns of token group
//   sums[2 h + e]   row group + 8 h of token 2 part + e
// The columns may be in any order, if A and B have the same. Numbers are binary16 or, from compute capability 8.0 on,
// bfloat16.
template <class Number = Binary16>
ZINC_DEVICE void mma_half(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&start)[4]) {
#ifdef ZINC_EMULATOR
  MmaHalfLane lane;
  memcpy(lane.a, a, sizeof a);
  memcpy(lane.b, b, sizeof b);
  memcpy(lane.sums, start, sizeof sums);
  ::zinc_emulator::warp_collective(mma_half_collective<Number>, full_warp, lane, __FILE__, __LINE__);
  memcpy(sums, lane.sums, sizeof sums);
#elif ZINC_ARCH >= 80
#define ZINC_MMA(type)                                                                                           \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                            \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                        \
               : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(start[0]), "f"(start[1]), \
                 "f"(start[2]), "f"(start[3]))
  if constexpr (is_bfloat<Number>) {
    ZINC_MMA("bf16");
  } else {
    ZINC_MMA("f16");
  }
#undef ZINC_MMA
#else
  float from[4] = {start[0], start[1], start[2], start[3]};
#pragma unroll
  for (unsigned j = 0; j < 2; ++j) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                 : "r"(a[2 * j]), "r"(a[2 * j + 1]), "r"(b[j]), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) from[i] = sums[i];
  }
#endif
}

// The same added to what is there.
template <class Number = Binary16>
ZINC_DEVICE void mma_half(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const float start[4] = {sums[0], sums[1], sums[2], sums[3]};
  mma_half<Number>(sums, a, b, start);
}

}  // namespace zinc
