// Built-ins of one thread: every thread writes all results for its own operands.
#include "zinc/platform.cuh"

struct no_push {
  uint32_t unused;
};

// Operands a, b, c per thread; 64 results each, in the order of tests/builtins.rs.
ZINC_KERNEL void test_integers(const uint3* in, uint32_t* out, no_push) {
  const unsigned a = in[threadIdx.x].x, b = in[threadIdx.x].y, c = in[threadIdx.x].z;
  const int sa = static_cast<int>(a), sb = static_cast<int>(b), sc = static_cast<int>(c);
  uint32_t* o = out + 64 * threadIdx.x;
  *o++ = static_cast<uint32_t>(__dp4a(sa, sb, sc));
  *o++ = __dp4a(a, b, c);
  *o++ = static_cast<uint32_t>(__dp2a_lo(sa, sb, sc));
  *o++ = static_cast<uint32_t>(__dp2a_hi(sa, sb, sc));
  *o++ = __byte_perm(a, b, c);
  *o++ = __funnelshift_l(a, b, c);
  *o++ = __funnelshift_r(a, b, c);
  *o++ = __funnelshift_lc(a, b, c);
  *o++ = __funnelshift_rc(a, b, c);
  *o++ = static_cast<uint32_t>(__popc(a));
  *o++ = static_cast<uint32_t>(__clz(sa));
  *o++ = static_cast<uint32_t>(__ffs(sa));
  *o++ = __brev(a);
  *o++ = __umulhi(a, b);
  *o++ = static_cast<uint32_t>(__mulhi(sa, sb));
  *o++ = static_cast<uint32_t>(__mul24(sa, sb));
  *o++ = __umul24(a, b);
  *o++ = static_cast<uint32_t>(min(sa, sb));
  *o++ = static_cast<uint32_t>(max(sa, sb));
  *o++ = min(a, b);
  *o++ = max(sa, b);
  *o++ = static_cast<uint32_t>(abs(sa));
  *o++ = __vsubss4(a, b);
  *o++ = __vadd4(a, b);
  *o++ = __vsub4(a, b);
  *o++ = __vcmpne4(a, b);
  *o++ = __vabs4(a);
  *o++ = __usad(a, b, c);
  *o++ = static_cast<uint32_t>(__popcll(uint64_t{a} << 32 | b));
  *o++ = static_cast<uint32_t>(__clzll(static_cast<long long>(uint64_t{a} << 32 | b)));
}
ZINC_EMULATOR_ENTRY(test_integers)

// Operands a, b, c per thread as f32; 32 results each, in the order of tests/builtins.rs.
ZINC_KERNEL void test_floats(const float3* in, uint32_t* out, no_push) {
  const float a = in[threadIdx.x].x, b = in[threadIdx.x].y, c = in[threadIdx.x].z;
  uint32_t* o = out + 32 * threadIdx.x;
  *o++ = static_cast<uint32_t>(__float2int_rn(a));
  *o++ = static_cast<uint32_t>(__float2int_rz(a));
  *o++ = static_cast<uint32_t>(__float2int_rd(a));
  *o++ = static_cast<uint32_t>(__float2int_ru(a));
  *o++ = __float2uint_rn(a);
  *o++ = __float_as_uint(fmaf(a, b, c));
  *o++ = __float_as_uint(a * b + c);
  *o++ = __float_as_uint(__fmaf_rn(a, b, c));
  *o++ = __float_as_uint(__fdividef(a, b));
  *o++ = __float_as_uint(__frcp_rn(a));
  *o++ = __float_as_uint(rsqrtf(fabsf(a)));
  *o++ = __float_as_uint(__fsqrt_rn(fabsf(a)));
  *o++ = __float_as_uint(__saturatef(a));
  *o++ = __float_as_uint(fminf(a, b));
  *o++ = __float_as_uint(max(a, b));
  *o++ = __float_as_uint(__int2float_rn(static_cast<int>(__float_as_uint(a))));
  *o++ = __float_as_uint(__uint2float_rn(__float_as_uint(a)));
  *o++ = static_cast<uint32_t>(__float2ll_rz(a));
  *o++ = __float_as_uint(__uint_as_float(__float_as_uint(a)));
}
ZINC_EMULATOR_ENTRY(test_floats)

// Transcendental functions: x, then their values as f32.
ZINC_KERNEL void test_functions(const float* in, float* out, no_push) {
  const float x = in[threadIdx.x];
  float* o = out + 16 * threadIdx.x;
  *o++ = __expf(x);
  *o++ = exp2f(x);
  *o++ = __logf(x);
  *o++ = __log2f(x);
  *o++ = __powf(x, 1.5f);
  *o++ = __sinf(x);
  *o++ = __cosf(x);
  *o++ = tanhf(x);
  sincosf(x, o, o + 1);
  __sincosf(x, o + 2, o + 3);
}
ZINC_EMULATOR_ENTRY(test_functions)

// All threads of all blocks on the same words: add, max, min, or, exchange of equal values, CAS increments, f32 add.
ZINC_KERNEL void test_atomics(uint32_t* words, float* sum, no_push) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&words[0], 1u);
  atomicMax(&words[1], i);
  atomicMin(&words[2], i + 5);
  atomicOr(&words[3], 1u << (i % 32));
  atomicExch(&words[4], 77u);
  unsigned seen = words[5];
  for (unsigned before;; seen = before) {
    before = atomicCAS(&words[5], seen, seen + 2);
    if (before == seen) break;
  }
  atomicMax(reinterpret_cast<int*>(&words[6]), -static_cast<int>(i) - 1);
  atomicInc(&words[7], 9);
  atomicAnd(&words[8], ~(1u << (i % 32)));
  atomicSub(&words[9], 1u);
  atomicAdd(sum, 0.5f);
}
ZINC_EMULATOR_ENTRY(test_atomics)
