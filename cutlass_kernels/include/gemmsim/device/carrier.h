// The two binary formats in which kernels compute, and the operations that must not be contracted, reassociated or flushed. The
// same code runs on the host (tests) and on the device. Operations round to nearest even unless their names say otherwise.
#pragma once
#include "gemmsim/types.h"
#if !defined(__CUDACC_RTC__)
#include <fenv.h>
#endif

// Loops over registers must be unrolled completely; loops around long code must not be copied. The host's compiler decides for
// itself.
#if defined(__CUDACC_RTC__)
#define GEMMSIM_UNROLL _Pragma("unroll")
#define GEMMSIM_NO_UNROLL _Pragma("unroll 1")
#define GEMMSIM_PRAGMA(x) _Pragma(#x)
#define GEMMSIM_UNROLL_BY(n) GEMMSIM_PRAGMA(unroll n)
#else
#define GEMMSIM_UNROLL
#define GEMMSIM_UNROLL_BY(n)
#define GEMMSIM_NO_UNROLL
#endif

namespace gemmsim {

template <class To, class From> GEMMSIM_HD constexpr To pun(From x) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, x);
}

template <class T> struct Carrier;

template <> struct Carrier<float> {
    typedef uint32_t U;
    typedef int32_t I;
    static constexpr int FRACTION = 23, BIAS = 127, EMAX = 127;
    static constexpr U SIGN = 0x80000000u, EXPONENT = 0x7F800000u, NAN_BITS = 0x7FC00000u;
};

template <> struct Carrier<double> {
    typedef uint64_t U;
    typedef int64_t I;
    static constexpr int FRACTION = 52, BIAS = 1023, EMAX = 1023;
    static constexpr U SIGN = 1ull << 63, EXPONENT = 0x7FFull << 52, NAN_BITS = 0x7FF8ull << 48;
};

template <class T> using Bits = typename Carrier<T>::U;

template <class T> GEMMSIM_HD constexpr Bits<T> to_bits(T x) { return pun<Bits<T>>(x); }
template <class T> GEMMSIM_HD constexpr T from_bits(Bits<T> u) { return pun<T>(u); }
template <class T> GEMMSIM_HD constexpr T quiet_nan() { return from_bits<T>(Carrier<T>::NAN_BITS); }

// A double by its bits, for constants that have no literal (infinities, NaN).
GEMMSIM_HD constexpr double number(uint64_t u) { return pun<double>(u); }

// The bit pattern of 2^e in the carrier, including its subnormal powers; 0 below them.
template <class T> GEMMSIM_HD constexpr Bits<T> power_bits(int e) {
    typedef Carrier<T> C;
    const int b = e + C::BIAS;
    if (b >= 1) return (Bits<T>)b << C::FRACTION;
    return b + C::FRACTION - 1 >= 0 ? (Bits<T>)1 << (b + C::FRACTION - 1) : 0;
}
template <class T> GEMMSIM_HD constexpr T power(int e) { return from_bits<T>(power_bits<T>(e)); }

#if defined(__CUDA_ARCH__)
GEMMSIM_HD float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GEMMSIM_HD double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }
GEMMSIM_HD float mul_rn(float a, float b) { return __fmul_rn(a, b); }
GEMMSIM_HD double mul_rn(double a, double b) { return __dmul_rn(a, b); }
GEMMSIM_HD float add_rn(float a, float b) { return __fadd_rn(a, b); }
GEMMSIM_HD double add_rn(double a, double b) { return __dadd_rn(a, b); }
GEMMSIM_HD float add_rz(float a, float b) { return __fadd_rz(a, b); }
GEMMSIM_HD double add_rz(double a, double b) { return __dadd_rz(a, b); }
GEMMSIM_HD float fma_rz(float a, float b, float c) { return __fmaf_rz(a, b, c); }
GEMMSIM_HD double fma_rz(double a, double b, double c) { return __fma_rz(a, b, c); }
// The smaller or the larger of two numbers. Of a NaN and a number, the result is the number.
GEMMSIM_HD float min_number(float a, float b) { return fminf(a, b); }
GEMMSIM_HD float max_number(float a, float b) { return fmaxf(a, b); }
GEMMSIM_HD double min_number(double a, double b) { return fmin(a, b); }
GEMMSIM_HD double max_number(double a, double b) { return fmax(a, b); }
GEMMSIM_HD float without_sign(float x) { return fabsf(x); }
GEMMSIM_HD double without_sign(double x) { return fabs(x); }
#else  // the host compiles with -ffp-contract=off
GEMMSIM_HD float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GEMMSIM_HD double fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
GEMMSIM_HD float mul_rn(float a, float b) { return a * b; }
GEMMSIM_HD double mul_rn(double a, double b) { return a * b; }
GEMMSIM_HD float add_rn(float a, float b) { return a + b; }
GEMMSIM_HD double add_rn(double a, double b) { return a + b; }
// The host changes its rounding mode for one operation, on values that are opaque to the compiler.
struct TowardZero {
    const int before = fegetround();
    TowardZero() { fesetround(FE_TOWARDZERO); }
    ~TowardZero() { fesetround(before); }
};
template <class T> GEMMSIM_HD T add_rz(T a, T b) {
    const TowardZero mode;
    volatile T x = a, y = b;
    volatile T sum = x + y;
    return sum;
}
template <class T> GEMMSIM_HD T fma_rz(T a, T b, T c) {
    const TowardZero mode;
    volatile T x = a, y = b, z = c;
    volatile T sum = fma_rn(x, y, z);
    return sum;
}
GEMMSIM_HD float min_number(float a, float b) { return b != b || a < b ? a : b; }
GEMMSIM_HD float max_number(float a, float b) { return b != b || a > b ? a : b; }
GEMMSIM_HD double min_number(double a, double b) { return b != b || a < b ? a : b; }
GEMMSIM_HD double max_number(double a, double b) { return b != b || a > b ? a : b; }
GEMMSIM_HD float without_sign(float x) { return __builtin_fabsf(x); }
GEMMSIM_HD double without_sign(double x) { return __builtin_fabs(x); }
#endif

}  // namespace gemmsim
