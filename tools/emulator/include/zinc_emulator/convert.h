// Bit casts and conversions between numbers with an explicit rounding mode. Conversions to integers saturate and turn
// NaN into 0, as the hardware's do (a plain C++ cast of such a value is undefined here).
#pragma once

namespace zinc_emulator {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// `value` is integral, infinite or NaN.
template <class To, class From>
inline To saturate(From value, To lowest, To highest) {
  if (!(value == value)) return 0;
  if (value <= static_cast<From>(lowest)) return lowest;
  if (value >= static_cast<From>(highest)) return highest;
  return static_cast<To>(value);
}

}  // namespace zinc_emulator

inline int __float_as_int(float value) { return zinc_emulator::bit_cast<int>(value); }
inline unsigned __float_as_uint(float value) { return zinc_emulator::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return zinc_emulator::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return zinc_emulator::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return zinc_emulator::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return zinc_emulator::bit_cast<double>(bits); }

// rintf rounds to nearest even in the default rounding mode, which nothing here changes.
#define ZINC_EMULATOR_FROM_FLOAT(suffix, round)                                                                     \
  inline int __float2int_##suffix(float value) {                                                                    \
    return zinc_emulator::saturate<int>(round##f(value), INT32_MIN, INT32_MAX);                                     \
  }                                                                                                                 \
  inline unsigned __float2uint_##suffix(float value) {                                                              \
    return zinc_emulator::saturate<unsigned>(round##f(value), 0u, UINT32_MAX);                                      \
  }                                                                                                                 \
  inline long long __float2ll_##suffix(float value) {                                                               \
    return zinc_emulator::saturate<long long>(round##f(value), INT64_MIN, INT64_MAX);                               \
  }                                                                                                                 \
  inline unsigned long long __float2ull_##suffix(float value) {                                                     \
    return zinc_emulator::saturate<unsigned long long>(round##f(value), 0ull, UINT64_MAX);                          \
  }                                                                                                                 \
  inline int __double2int_##suffix(double value) {                                                                  \
    return zinc_emulator::saturate<int>(round(value), INT32_MIN, INT32_MAX);                                        \
  }

ZINC_EMULATOR_FROM_FLOAT(rn, rint)
ZINC_EMULATOR_FROM_FLOAT(rz, trunc)
ZINC_EMULATOR_FROM_FLOAT(rd, floor)
ZINC_EMULATOR_FROM_FLOAT(ru, ceil)
#undef ZINC_EMULATOR_FROM_FLOAT

inline float __int2float_rn(int value) { return static_cast<float>(value); }
inline float __uint2float_rn(unsigned value) { return static_cast<float>(value); }
inline float __ll2float_rn(long long value) { return static_cast<float>(value); }
inline float __ull2float_rn(unsigned long long value) { return static_cast<float>(value); }
inline float __double2float_rn(double value) { return static_cast<float>(value); }
inline double __int2double_rn(int value) { return value; }
inline double __uint2double_rn(unsigned value) { return value; }
