// Converts tensor elements to carrier values and back. Reading is exact. Writing rounds to nearest even, once, with overflow to
// infinity. It writes the one canonical quiet NaN of each type (sign 0, first fraction bit), on host and device alike.
#pragma once
#include "gemmsim/device/carrier.h"

namespace gemmsim {

template <int DTYPE> struct Storage;
template <> struct Storage<F32> {
    typedef float Word;
};
template <> struct Storage<F64> {
    typedef double Word;
};
template <> struct Storage<F16> {
    typedef uint16_t Word;
};
template <> struct Storage<BF16> {
    typedef uint16_t Word;
};

GEMMSIM_HD float bf16_value(uint16_t h) { return from_bits<float>((uint32_t)h << 16); }

#if defined(__CUDA_ARCH__)
GEMMSIM_HD float half_value(uint16_t h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
// A NaN becomes some NaN; here it is the instruction's, 0x7FFF.
GEMMSIM_HD uint16_t half_any_nan(float x) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
GEMMSIM_HD uint16_t bf16_any_nan(float x) {
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
GEMMSIM_HD float toward_zero(double x) { return __double2float_rz(x); }
#else
GEMMSIM_HD float half_value(uint16_t h) {
    const uint32_t mag = (uint32_t)(h & 0x7FFFu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    if (mag >= 0x0F800000u) return from_bits<float>(mag | 0x7F800000u | sign);  // infinity, NaN
    const float x = from_bits<float>(mag) * 0x1p112f;                           // exact, subnormals included
    return sign ? -x : x;
}
GEMMSIM_HD uint16_t half_any_nan(float x) {
    const uint32_t u = to_bits(x);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    uint32_t mag = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return 0x7E00u;
    if (mag >= 0x477FF000u) return sign | 0x7C00u;  // from 65520 on
    if (mag < 0x38800000u) {                        // below 2^-14: the last place of 0.5 is half's smallest subnormal
        mag = to_bits(from_bits<float>(mag) + 0.5f);
        return (uint16_t)(sign | (mag - 0x3F000000u));
    }
    mag += 0xFFFu + (mag >> 13 & 1u);
    return (uint16_t)(sign | (mag - 0x38000000u) >> 13);
}
GEMMSIM_HD uint16_t bf16_any_nan(float x) {
    const uint32_t u = to_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0u;
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
GEMMSIM_HD float toward_zero(double x) {
    const float f = (float)x;
    return __builtin_fabs((double)f) > __builtin_fabs(x) ? from_bits<float>(to_bits(f) - 1) : f;
}
#endif

// Two numbers to nearest even, the first in the low half. A NaN becomes some NaN.
template <int D> GEMMSIM_HD uint32_t pair_of(float first, float second) {
#if defined(__CUDA_ARCH__)
    uint32_t both;
    if constexpr (D == BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return D == BF16 ? bf16_any_nan(first) | (uint32_t)bf16_any_nan(second) << 16
                     : half_any_nan(first) | (uint32_t)half_any_nan(second) << 16;
#endif
}

GEMMSIM_HD uint16_t half_nearest(float x) { return x != x ? (uint16_t)0x7E00u : half_any_nan(x); }
GEMMSIM_HD uint16_t bf16_nearest(float x) { return x != x ? (uint16_t)0x7FC0u : bf16_any_nan(x); }

// x rounded to odd. A further rounding to 22 bits or fewer gives what one rounding of x would.
GEMMSIM_HD float to_odd(double x) {
    const float f = toward_zero(x);
    return (double)f == x || x != x ? f : from_bits<float>(to_bits(f) | 1u);
}

template <int DTYPE, class T> GEMMSIM_HD T load_value(typename Storage<DTYPE>::Word w) {
    if constexpr (DTYPE == F16) return (T)half_value(w);
    else if constexpr (DTYPE == BF16) return (T)bf16_value(w);
    else return (T)w;
}

template <int DTYPE, class T> GEMMSIM_HD typename Storage<DTYPE>::Word store_value(T x) {
    if constexpr (DTYPE == F16 || DTYPE == BF16) {
        float f;
        if constexpr (sizeof(T) == 8) f = to_odd(x);
        else f = x;
        return DTYPE == F16 ? half_nearest(f) : bf16_nearest(f);
    } else {
        typedef typename Storage<DTYPE>::Word Word;
        return x != x ? quiet_nan<Word>() : (Word)x;
    }
}

}  // namespace gemmsim
