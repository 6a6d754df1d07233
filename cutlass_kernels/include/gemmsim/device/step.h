// One step of a register: s = R_add(s + a b), or s = R_add(s + R_mul(a b)), for any operands and any casts. Kernels of gemmsim and
// atoms of CuTe (gemmsim/cute) compute with it.
#pragma once
#include "gemmsim/device/facts.h"
#include "gemmsim/device/round_to_odd.h"

#if defined(__CUDACC_RTC__)
#define GEMMSIM_CALL __device__ __noinline__
#elif defined(__CUDACC__)
#define GEMMSIM_CALL __host__ __device__ __noinline__
#else
#define GEMMSIM_CALL inline
#endif

namespace gemmsim {

// Whether truncation below the last bit that matters suffices in place of rounding to odd. It does where the mode depends only on
// the bits above.
GEMMSIM_HD constexpr bool cut_suffices(const Cast& c) { return c.mode == RTZ || c.mode == SR || c.mode == RNA; }

// Exact arithmetic in integers of 128 bits. This code is long, so a kernel contains one copy of each function.
template <Cast C> GEMMSIM_CALL double exact_fused(double a, double b, double s, uint32_t R) { return fused_step(a, b, s, C, R); }
template <Cast C> GEMMSIM_CALL double exact_product_to(double a, double b, uint32_t R) { return product_step(a, b, C, R); }
template <Cast C> GEMMSIM_CALL double exact_sum_to(double q, double s, uint32_t R) { return sum_step(q, s, C, R); }
template <Cast C> GEMMSIM_CALL double exact_round_to(double x, uint32_t R) { return round_value(x, C, R); }

// One rounding to C of values in carrier T. FP32: the input is the carrier's own nearest result, not one rounded to odd.
template <class T, Cast C, bool FP32> struct Rounding {
    static constexpr bool NATIVE = is_native<T>(C) && (!FP32 || sizeof(T) == 4);
    static constexpr bool FITS = NATIVE || fits<T>(C, !FP32);

    static GEMMSIM_HD T apply(T x, uint32_t R) {
        if constexpr (NATIVE) return x;
        else return (T)round_cast<C>(x, R);
    }
    // R_C(x + y) of any two carrier values. NEAR: the carrier's nearest sum is known to suffice.
    template <bool NEAR = false> static GEMMSIM_HD T sum(T x, T y, uint32_t R) {
        if constexpr (!FITS && FP32) return (T)exact_round_to<C>((double)((float)x + (float)y), R);
        else if constexpr (!FITS) return (T)exact_sum_to<C>((double)x, (double)y, R);
        else if constexpr (NATIVE || FP32 || NEAR) return apply(add_rn(x, y), R);
        else if constexpr (cut_suffices(C)) return apply(add_rz(x, y), R);
        else return apply(add_odd(x, y), R);
    }
    template <bool NEAR = false> static GEMMSIM_HD T product(T a, T b, uint32_t R) {
        if constexpr (!FITS && FP32) return (T)exact_round_to<C>((double)mul_rn((float)a, (float)b), R);
        else if constexpr (!FITS) return (T)exact_product_to<C>((double)a, (double)b, R);
        else if constexpr (NATIVE || FP32 || NEAR) return apply(mul_rn(a, b), R);
        else if constexpr (cut_suffices(C)) return apply(mul_rz(a, b), R);
        else return apply(mul_odd(a, b), R);
    }
    template <bool NEAR = false> static GEMMSIM_HD T fused(T a, T b, T c, uint32_t R) {
        if constexpr (!FITS && FP32) return (T)exact_round_to<C>((double)fma_rn((float)a, (float)b, (float)c), R);
        else if constexpr (!FITS) return (T)exact_fused<C>((double)a, (double)b, (double)c, R);
        else if constexpr (NATIVE || FP32 || NEAR) return apply(fma_rn(a, b, c), R);
        else if constexpr (cut_suffices(C)) return apply(fma_rz(a, b, c), R);
        else return apply(fma_odd(a, b, c), R);
    }
};

// Constants that define a step.
struct StepConfig {
    Cast mul, add;        // roundings of the product, unless it is fused, and of the sum
    OperandFacts a, b;    // of the factors
    int32_t fused, fp32;  // fp32: operations are rounded to binary32 before the casts
    int32_t carrier;      // 0 float, 1 double, 2 integers of 128 bits
    int32_t any_start;    // the register may start from a number that is not one of its format
};

// The types and roundings of a step.
template <StepConfig K> struct Step {
    template <class X, class Y, bool WIDE> struct Pick {
        typedef X type;
    };
    template <class X, class Y> struct Pick<X, Y, true> {
        typedef Y type;
    };
    // Integers of 128 bits take doubles, except under arithmetic="fp32", which computes in floats.
    static constexpr bool WIDE = K.carrier == 1 || (K.carrier == 2 && !K.fp32);
    typedef typename Pick<float, double, WIDE>::type T;

    static constexpr ProductFacts<T> FACTS{K.a, K.b};
    static constexpr bool FROM_FORMATS = !K.any_start;
    static constexpr bool NEAR_FUSED = FROM_FORMATS && FACTS.near_fused(K.add);
    static constexpr bool NEAR_PRODUCT = FACTS.exact;
    static constexpr bool NEAR_SUM = FROM_FORMATS && near_sum<T>(K.add, K.mul);

    typedef Rounding<T, K.add, K.fp32 != 0> Add;
    typedef Rounding<T, K.mul, K.fp32 != 0> Mul;
    static constexpr bool FITS = K.carrier == 2 || (Add::FITS && (K.fused || Mul::FITS));

    static GEMMSIM_HD T step(T s, T a, T b, uint32_t rm, uint32_t ra) {
        if constexpr (K.fused) return Add::template fused<NEAR_FUSED>(a, b, s, ra);
        else return Add::template sum<NEAR_SUM>(Mul::template product<NEAR_PRODUCT>(a, b, rm), s, ra);
    }
};

}  // namespace gemmsim
