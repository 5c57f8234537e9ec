// CUDA's short vector types with their sizes and alignments, and the functions that make them.
#pragma once

#define ZINC_EMULATOR_VECTORS(name, scalar, align2, align4)                                                   \
  struct name##1 {                                                                                            \
    scalar x;                                                                                                 \
  };                                                                                                          \
  struct __attribute__((aligned(align2))) name##2 {                                                           \
    scalar x, y;                                                                                              \
  };                                                                                                          \
  struct name##3 {                                                                                            \
    scalar x, y, z;                                                                                           \
  };                                                                                                          \
  struct __attribute__((aligned(align4))) name##4 {                                                           \
    scalar x, y, z, w;                                                                                        \
  };                                                                                                          \
  constexpr name##1 make_##name##1(scalar x) { return {x}; }                                                  \
  constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                                     \
  constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }                        \
  constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

ZINC_EMULATOR_VECTORS(char, signed char, 2, 4)
ZINC_EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
ZINC_EMULATOR_VECTORS(short, short, 4, 8)
ZINC_EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
ZINC_EMULATOR_VECTORS(int, int, 8, 16)
ZINC_EMULATOR_VECTORS(uint, unsigned int, 8, 16)
ZINC_EMULATOR_VECTORS(long, long, 16, 16)
ZINC_EMULATOR_VECTORS(ulong, unsigned long, 16, 16)
ZINC_EMULATOR_VECTORS(longlong, long long, 16, 16)
ZINC_EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
ZINC_EMULATOR_VECTORS(float, float, 8, 16)
ZINC_EMULATOR_VECTORS(double, double, 16, 16)
#undef ZINC_EMULATOR_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

static_assert(sizeof(float4) == 16 && alignof(float4) == 16, "float4 is one 16-byte access");
static_assert(sizeof(uint2) == 8 && alignof(uint2) == 8, "uint2 is one 8-byte access");
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4, "uchar4 is one 4-byte access");
static_assert(sizeof(float3) == 12 && alignof(float3) == 4, "float3 is three 4-byte accesses");
