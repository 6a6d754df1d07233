// This file defines the vectors of one instruction set: GCC/Clang vector extensions for arithmetic, intrinsics for what
// these lack. Every translation unit that includes this file is compiled once per ISA, with NS (namespace) and WIDTH
// (bytes) set. It is compiled with -ffp-contract=off: a fused multiply-add happens only where the code has one.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "gemmsim/types.h"

#if defined(__AVX512F__) && WIDTH == 64
#define ISA_AVX512 1
#define ISA_DIRECTED 1  // embedded rounding
#define ISA_MODES 0
#elif defined(__FMA__) && WIDTH == 32
#define ISA_AVX2 1
#define ISA_DIRECTED 0
#define ISA_MODES 1  // kernels may compute tiles under a rounding direction of the processor (float_state.h)
#elif defined(__aarch64__) && WIDTH == 16
#define ISA_NEON 1
#define ISA_DIRECTED 0
#define ISA_MODES 1
#else
#define ISA_BASE 1
#define ISA_DIRECTED 0
#define ISA_MODES 0
#endif

#if !defined(ISA_NEON)
#define ISA_NEON 0  // code also reads this macro as a number
#endif

#define INL static inline __attribute__((always_inline))
#define INL_MEMBER inline __attribute__((always_inline))
// Elements of two vectors by their numbers, which are constants; `mask` is the type of a vector of such numbers. GCC has
// Clang's function from version 12 on.
#if defined(__clang__) || __GNUC__ >= 12
#define GEMMSIM_SHUFFLE(a, b, mask, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define GEMMSIM_SHUFFLE(a, b, mask, ...) __builtin_shuffle(a, b, mask{__VA_ARGS__})
#endif
// x86 without FMA instructions is slow in any case. It gets few kernels (ISA_FEW), and long steps are functions instead
// of being inlined at each use.
#if ISA_BASE && defined(__x86_64__)
#define ISA_FEW 1
#define INL_LONG static __attribute__((noinline))
#else
#define INL_LONG INL
#endif

namespace gemmsim::NS {

template <class T, int BYTES = WIDTH> struct Vec {
    typedef T type __attribute__((vector_size(BYTES), may_alias));
};

// A carrier: the native type that holds rounded values.
struct C32 {
    typedef float T;
    typedef int32_t I;
    typedef uint32_t U;
    typedef Vec<float>::type V;
    typedef Vec<int32_t>::type VI;
    typedef Vec<uint32_t>::type VU;
    static constexpr int L = WIDTH / 4, MB = 23, BIAS = 127, EMAX = 127;
    static constexpr U SIGN = 0x80000000u, EXP = 0x7F800000u, FRAC = 0x007FFFFFu, ONE = 0x00800000u, NAN_BITS = 0x7FC00000u;
};
struct C64 {
    typedef double T;
    typedef int64_t I;
    typedef uint64_t U;
    typedef Vec<double>::type V;
    typedef Vec<int64_t>::type VI;
    typedef Vec<uint64_t>::type VU;
    static constexpr int L = WIDTH / 8, MB = 52, BIAS = 1023, EMAX = 1023;
    static constexpr U SIGN = 1ull << 63, EXP = 0x7FFull << 52, FRAC = (1ull << 52) - 1, ONE = 1ull << 52, NAN_BITS = 0x7FF8ull << 48;
};

template <class C> INL typename C::V splat(typename C::T x) { return x - (typename C::V){}; }
template <class C> INL typename C::VU splat_u(typename C::U x) { return x - (typename C::VU){}; }
template <class C> INL typename C::VI splat_i(typename C::I x) { return x - (typename C::VI){}; }
// x + y modulo 2^32. Only infinities and NaN make the sum wrap, and callers do not use the results of these.
INL C32::VI wrapped_sum(C32::VI x, C32::VI y) { return (C32::VI)((C32::VU)x + (C32::VU)y); }
template <class V, class S> INL V cast_to(S x) { return (V)x; }
template <class V, class T> INL V load(const T* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class V, class T> INL void store(T* p, V v) { memcpy(p, &v, sizeof v); }

// Returns x in a CPU register. The compiler cannot load x from memory again afterwards, and cannot move this point past
// the next such call.
template <class V> INL V in_register(V x) {
#if ISA_AVX512
    __asm__ volatile("" : "+v"(x));
#elif defined(__x86_64__)
    __asm__ volatile("" : "+x"(x));
#elif defined(__aarch64__)
    __asm__ volatile("" : "+w"(x));
#endif
    return x;
}

// Vectors of floats and integers with as many lanes as a vector of doubles.
typedef Vec<float, WIDTH / 2>::type HalfFloats;
typedef Vec<int32_t, WIDTH / 2>::type HalfInts;
#if ISA_NEON  // GCC 12 converts such half vectors lane by lane
INL C64::V widened(HalfFloats x) { return (C64::V)vcvt_f64_f32((float32x2_t)x); }
INL C64::VI widened_integers(HalfInts x) { return (C64::VI)vmovl_s32((int32x2_t)x); }
INL C64::V widened(HalfInts x) { return (C64::V)vcvtq_f64_s64(vmovl_s32((int32x2_t)x)); }
#else
INL C64::V widened(HalfFloats x) { return __builtin_convertvector(x, C64::V); }
INL C64::VI widened_integers(HalfInts x) { return __builtin_convertvector(x, C64::VI); }
INL C64::V widened(HalfInts x) { return __builtin_convertvector(x, C64::V); }
#endif

#if ISA_AVX512
INL C32::V vfma(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INL C64::V vfma(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#define RM(dir) (_MM_FROUND_##dir | _MM_FROUND_NO_EXC)
INL C32::V fma_rd(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmadd_round_ps((__m512)a, (__m512)b, (__m512)c, RM(TO_NEG_INF)); }
INL C32::V fma_ru(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmadd_round_ps((__m512)a, (__m512)b, (__m512)c, RM(TO_POS_INF)); }
INL C32::V fma_rz(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmadd_round_ps((__m512)a, (__m512)b, (__m512)c, RM(TO_ZERO)); }
INL C64::V fma_rd(C64::V a, C64::V b, C64::V c) {
    return (C64::V)_mm512_fmadd_round_pd((__m512d)a, (__m512d)b, (__m512d)c, RM(TO_NEG_INF));
}
INL C64::V fma_ru(C64::V a, C64::V b, C64::V c) {
    return (C64::V)_mm512_fmadd_round_pd((__m512d)a, (__m512d)b, (__m512d)c, RM(TO_POS_INF));
}
INL C64::V fma_rz(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm512_fmadd_round_pd((__m512d)a, (__m512d)b, (__m512d)c, RM(TO_ZERO)); }
INL C32::V mul_rd(C32::V a, C32::V b) { return (C32::V)_mm512_mul_round_ps((__m512)a, (__m512)b, RM(TO_NEG_INF)); }
INL C32::V mul_ru(C32::V a, C32::V b) { return (C32::V)_mm512_mul_round_ps((__m512)a, (__m512)b, RM(TO_POS_INF)); }
INL C64::V mul_rd(C64::V a, C64::V b) { return (C64::V)_mm512_mul_round_pd((__m512d)a, (__m512d)b, RM(TO_NEG_INF)); }
INL C64::V mul_ru(C64::V a, C64::V b) { return (C64::V)_mm512_mul_round_pd((__m512d)a, (__m512d)b, RM(TO_POS_INF)); }
INL C32::V add_rd(C32::V a, C32::V b) { return (C32::V)_mm512_add_round_ps((__m512)a, (__m512)b, RM(TO_NEG_INF)); }
INL C32::V add_ru(C32::V a, C32::V b) { return (C32::V)_mm512_add_round_ps((__m512)a, (__m512)b, RM(TO_POS_INF)); }
INL C64::V add_rd(C64::V a, C64::V b) { return (C64::V)_mm512_add_round_pd((__m512d)a, (__m512d)b, RM(TO_NEG_INF)); }
INL C64::V add_ru(C64::V a, C64::V b) { return (C64::V)_mm512_add_round_pd((__m512d)a, (__m512d)b, RM(TO_POS_INF)); }
INL C32::V mul_rz(C32::V a, C32::V b) { return (C32::V)_mm512_mul_round_ps((__m512)a, (__m512)b, RM(TO_ZERO)); }
INL C64::V mul_rz(C64::V a, C64::V b) { return (C64::V)_mm512_mul_round_pd((__m512d)a, (__m512d)b, RM(TO_ZERO)); }
INL C32::V add_rz(C32::V a, C32::V b) { return (C32::V)_mm512_add_round_ps((__m512)a, (__m512)b, RM(TO_ZERO)); }
INL C64::V add_rz(C64::V a, C64::V b) { return (C64::V)_mm512_add_round_pd((__m512d)a, (__m512d)b, RM(TO_ZERO)); }
INL C32::V to_float(C32::VU x) { return (C32::V)_mm512_cvtepi32_ps((__m512i)x); }
INL C64::V to_float(C64::VU x) { return (C64::V)_mm512_cvtepi64_pd((__m512i)x); }
// Round to odd: replaces the even one of the two directed results by its odd neighbour.
INL C32::V pick_odd(C32::V lo, C32::V hi) {
    return (C32::V)_mm512_mask_mov_ps((__m512)hi, _mm512_test_epi32_mask((__m512i)lo, _mm512_set1_epi32(1)), (__m512)lo);
}
INL C64::V pick_odd(C64::V lo, C64::V hi) {
    return (C64::V)_mm512_mask_mov_pd((__m512d)hi, _mm512_test_epi64_mask((__m512i)lo, _mm512_set1_epi64(1)), (__m512d)lo);
}
// vmin and vmax return the second operand when either is NaN.
INL C32::V vmin(C32::V a, C32::V b) { return (C32::V)_mm512_min_ps((__m512)a, (__m512)b); }
INL C32::V vmax(C32::V a, C32::V b) { return (C32::V)_mm512_max_ps((__m512)a, (__m512)b); }
INL C64::V vmin(C64::V a, C64::V b) { return (C64::V)_mm512_min_pd((__m512d)a, (__m512d)b); }
INL C64::V vmax(C64::V a, C64::V b) { return (C64::V)_mm512_max_pd((__m512d)a, (__m512d)b); }
INL C32::VI imax(C32::VI a, C32::VI b) { return (C32::VI)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INL C64::VI imax(C64::VI a, C64::VI b) { return (C64::VI)_mm512_max_epi64((__m512i)a, (__m512i)b); }
INL C64::VU mul32(C64::VU a, C64::VU b) { return (C64::VU)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#else
#if ISA_AVX2
INL C32::V vfma(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INL C64::V vfma(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INL C32::V vmin(C32::V a, C32::V b) { return (C32::V)_mm256_min_ps((__m256)a, (__m256)b); }
INL C32::V vmax(C32::V a, C32::V b) { return (C32::V)_mm256_max_ps((__m256)a, (__m256)b); }
INL C64::V vmin(C64::V a, C64::V b) { return (C64::V)_mm256_min_pd((__m256d)a, (__m256d)b); }
INL C64::V vmax(C64::V a, C64::V b) { return (C64::V)_mm256_max_pd((__m256d)a, (__m256d)b); }
INL C32::VI imax(C32::VI a, C32::VI b) { return (C32::VI)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INL C64::VU mul32(C64::VU a, C64::VU b) { return (C64::VU)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#elif ISA_NEON
INL C32::V vfma(C32::V a, C32::V b, C32::V c) { return (C32::V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INL C64::V vfma(C64::V a, C64::V b, C64::V c) { return (C64::V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
// Comparisons instead of the instructions, which order zeros by their signs.
INL C32::V vmin(C32::V a, C32::V b) { return a < b ? a : b; }
INL C32::V vmax(C32::V a, C32::V b) { return a > b ? a : b; }
INL C64::V vmin(C64::V a, C64::V b) { return a < b ? a : b; }
INL C64::V vmax(C64::V a, C64::V b) { return a > b ? a : b; }
INL C32::VI imax(C32::VI a, C32::VI b) { return (C32::VI)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
INL C64::VU mul32(C64::VU a, C64::VU b) { return (C64::VU)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b)); }
#else
// This ISA has no FMA instruction: the C library's correctly rounded fma replaces it.
template <class V> INL_LONG V fma_lanes(V a, V b, V c) {
    for (size_t i = 0; i < sizeof(V) / sizeof(a[0]); ++i)
        c[i] = sizeof(a[0]) == 4 ? __builtin_fmaf(a[i], b[i], c[i]) : __builtin_fma(a[i], b[i], c[i]);
    return c;
}
INL C32::V vfma(C32::V a, C32::V b, C32::V c) { return fma_lanes(a, b, c); }
INL C64::V vfma(C64::V a, C64::V b, C64::V c) { return fma_lanes(a, b, c); }
INL C32::V vmin(C32::V a, C32::V b) { return a < b ? a : b; }
INL C32::V vmax(C32::V a, C32::V b) { return a > b ? a : b; }
INL C64::V vmin(C64::V a, C64::V b) { return a < b ? a : b; }
INL C64::V vmax(C64::V a, C64::V b) { return a > b ? a : b; }
INL C32::VI imax(C32::VI a, C32::VI b) { return a > b ? a : b; }
#if defined(__SSE2__)
INL C64::VU mul32(C64::VU a, C64::VU b) { return (C64::VU)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
INL C64::VU mul32(C64::VU a, C64::VU b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
#endif
#endif
INL C64::VI imax(C64::VI a, C64::VI b) { return a > b ? a : b; }
#endif

#if ISA_AVX512
INL C32::VU umax(C32::VU a, C32::VU b) { return (C32::VU)_mm512_max_epu32((__m512i)a, (__m512i)b); }
template <class VI> INL bool none_set(VI x) { return _mm512_test_epi64_mask((__m512i)x, (__m512i)x) == 0; }
#endif

// x clamped to [lo, hi]; NaN stays NaN.
template <class V> INL V clamped(V lo, V hi, V x) { return vmin(hi, vmax(lo, x)); }
#if ISA_NEON
// Where lo is +0, this may turn -0 into +0. For casts without a negative zero the two are the same.
INL C32::V clamped(C32::V lo, C32::V hi, C32::V x) {
    return (C32::V)vminq_f32((float32x4_t)hi, vmaxq_f32((float32x4_t)lo, (float32x4_t)x));
}
INL C64::V clamped(C64::V lo, C64::V hi, C64::V x) {
    return (C64::V)vminq_f64((float64x2_t)hi, vmaxq_f64((float64x2_t)lo, (float64x2_t)x));
}
#endif

#if ISA_MODES
#if ISA_NEON
INL C32::V vfnms(C32::V a, C32::V b, C32::V c) { return (C32::V)vfmsq_f32((float32x4_t)-c, (float32x4_t)a, (float32x4_t)b); }
INL C64::V vfnms(C64::V a, C64::V b, C64::V c) { return (C64::V)vfmsq_f64((float64x2_t)-c, (float64x2_t)a, (float64x2_t)b); }
INL C32::VI imin(C32::VI a, C32::VI b) { return (C32::VI)vminq_s32((int32x4_t)a, (int32x4_t)b); }
INL C32::VU umin(C32::VU a, C32::VU b) { return (C32::VU)vminq_u32((uint32x4_t)a, (uint32x4_t)b); }
INL C32::VU umax(C32::VU a, C32::VU b) { return (C32::VU)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b); }
template <class VI> INL bool none_set(VI x) { return vmaxvq_u32((uint32x4_t)x) == 0; }
// b where x is odd, else a.
INL C32::V where_odd(C32::V a, C32::V b, C32::VU x) {
    return (C32::V)vbslq_f32(vtstq_u32((uint32x4_t)x, vdupq_n_u32(1)), (float32x4_t)b, (float32x4_t)a);
}
INL C64::V where_odd(C64::V a, C64::V b, C64::VU x) {
    return (C64::V)vbslq_f64(vtstq_u64((uint64x2_t)x, vdupq_n_u64(1)), (float64x2_t)b, (float64x2_t)a);
}
#else
INL C32::V vfnms(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm256_fnmsub_ps((__m256)a, (__m256)b, (__m256)c); }
INL C64::V vfnms(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm256_fnmsub_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INL C32::VI imin(C32::VI a, C32::VI b) { return (C32::VI)_mm256_min_epi32((__m256i)a, (__m256i)b); }
INL C32::VU umin(C32::VU a, C32::VU b) { return (C32::VU)_mm256_min_epu32((__m256i)a, (__m256i)b); }
INL C32::VU umax(C32::VU a, C32::VU b) { return (C32::VU)_mm256_max_epu32((__m256i)a, (__m256i)b); }
template <class VI> INL bool none_set(VI x) { return _mm256_testz_si256((__m256i)x, (__m256i)x); }
INL C32::V where_odd(C32::V a, C32::V b, C32::VU x) { return (C32::V)_mm256_blendv_ps((__m256)a, (__m256)b, (__m256)(x << 31)); }
INL C64::V where_odd(C64::V a, C64::V b, C64::VU x) { return (C64::V)_mm256_blendv_pd((__m256d)a, (__m256d)b, (__m256d)(x << 63)); }
#endif
#endif

// Sum, product and fused multiply-add rounded to odd. With embedded rounding they come from the two directed results
// and take any operands. Without it, the sum uses the exact error of the nearest sum (Knuth's TwoSum). The product must
// then be exact in the carrier; the planner guarantees that, and Isa::directed says which of the two cases holds.
#if ISA_AVX512
template <class C> INL typename C::V fma_odd(typename C::V a, typename C::V b, typename C::V c) {
    return pick_odd(fma_rd(a, b, c), fma_ru(a, b, c));
}
template <class C> INL typename C::V mul_odd(typename C::V a, typename C::V b) { return pick_odd(mul_rd(a, b), mul_ru(a, b)); }
template <class C> INL typename C::V add_odd(typename C::V a, typename C::V b) { return pick_odd(add_rd(a, b), add_ru(a, b)); }
#else
template <class C> INL_LONG typename C::V add_odd(typename C::V a, typename C::V b) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const V s = a + b, bb = s - a, err = (a - (s - bb)) + (b - bb);
    const VU u = (VU)s;
    // Inexact, finite and with an even last bit: move one step towards the error's sign.
    const VI fix = (err != (V){}) & (err == err) & (VI)((VU)(u & C::EXP) != splat_u<C>(C::EXP)) & (VI)((VU)(u & 1) == (VU){});
    const VI away = (VI)((err > (V){}) == (s > (V){}));  // all ones: the magnitude grows
    const VU step = (VU)((away & 2) - 1);                // +1 or -1
    // A nearest sum that overflowed is moved back to the largest finite value, which is odd.
    const VI over = (VI)((VU)(u & ~C::SIGN) == splat_u<C>(C::EXP)) & (VI)((VU)((VU)a & C::EXP) != splat_u<C>(C::EXP)) &
                    (VI)((VU)((VU)b & C::EXP) != splat_u<C>(C::EXP));
    return (V)(u + ((VU)fix & step) - ((VU)over & 1));
}
template <class C> INL typename C::V mul_odd(typename C::V a, typename C::V b) { return a * b; }
template <class C> INL typename C::V fma_odd(typename C::V a, typename C::V b, typename C::V c) { return add_odd<C>(a * b, c); }
#endif

}  // namespace gemmsim::NS
