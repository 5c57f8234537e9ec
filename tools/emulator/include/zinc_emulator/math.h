// Floating-point functions. The host's <math.h> has most of them with the meaning that they have in CUDA; here are
// the rest. The fast intrinsics are as accurate as the functions they stand for. Some of these names are also the C
// library's own, for which a macro stands in.
#pragma once

inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

namespace zinc_emulator {

inline float reciprocal_root(float value) { return static_cast<float>(1.0 / sqrt(static_cast<double>(value))); }
inline float exp10_f32(float value) { return static_cast<float>(pow(10.0, static_cast<double>(value))); }
inline void sine_cosine(float angle, float* sine, float* cosine) {
  *sine = sinf(angle);
  *cosine = cosf(angle);
}

}  // namespace zinc_emulator

#define __expf(x) ::expf(x)
#define __exp2f(x) ::exp2f(x)
#define __exp10f(x) ::zinc_emulator::exp10_f32(x)
#define exp10f(x) ::zinc_emulator::exp10_f32(x)
#define __logf(x) ::logf(x)
#define __log2f(x) ::log2f(x)
#define __log10f(x) ::log10f(x)
#define __powf(x, y) ::powf(x, y)
#define __sinf(x) ::sinf(x)
#define __cosf(x) ::cosf(x)
#define __tanf(x) ::tanf(x)
#define __tanhf(x) ::tanhf(x)
#define __sincosf(x, sine, cosine) ::zinc_emulator::sine_cosine(x, sine, cosine)
#define sincosf(x, sine, cosine) ::zinc_emulator::sine_cosine(x, sine, cosine)
#define rsqrtf(x) ::zinc_emulator::reciprocal_root(x)
#define rsqrt(x) (1.0 / ::sqrt(static_cast<double>(x)))

inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }
inline float __fsqrt_rn(float value) { return sqrtf(value); }
inline float __frsqrt_rn(float value) { return zinc_emulator::reciprocal_root(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __saturatef(float value) { return value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

namespace zinc_emulator {

// Nanoseconds of a monotonic clock.
inline long long ticks() {
#if defined(CLOCK_MONOTONIC)
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
#else
  return 0;
#endif
}

}  // namespace zinc_emulator

#define clock64() ::zinc_emulator::ticks()
#define clock() static_cast<int>(::zinc_emulator::ticks())
inline void __nanosleep(unsigned) {}
