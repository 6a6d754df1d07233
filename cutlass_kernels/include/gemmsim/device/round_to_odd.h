// Operations that round toward zero or to odd. Rounding to odd gives the neighbour with the odd last bit where the result is not
// exact. Rounding such a result again, to at least two bits fewer, gives the exact result rounded once. Source: Boldo and
// Melquiond, "Emulation of a FMA and correctly rounded sums", 2008. Overflow gives the largest finite number, which is odd and lies
// toward zero. An exact zero sum is +0 unless both addends are -0.
#pragma once
#include "gemmsim/device/carrier.h"
#include "gemmsim/exact.h"

namespace gemmsim {

#if defined(__CUDA_ARCH__)
GEMMSIM_HD float mul_rz(float a, float b) { return __fmul_rz(a, b); }
GEMMSIM_HD double mul_rz(double a, double b) { return __dmul_rz(a, b); }

// Combines both directed roundings. Of two neighbours it returns the odd one, of an exact result that number, and of two zeros
// `up`, which is +0.
template <class T> GEMMSIM_HD T odd_of(T down, T up) { return to_bits(down) & 1 ? down : up; }
GEMMSIM_HD float fma_odd(float a, float b, float c) { return odd_of(__fmaf_rd(a, b, c), __fmaf_ru(a, b, c)); }
GEMMSIM_HD double fma_odd(double a, double b, double c) { return odd_of(__fma_rd(a, b, c), __fma_ru(a, b, c)); }
GEMMSIM_HD float mul_odd(float a, float b) { return odd_of(__fmul_rd(a, b), __fmul_ru(a, b)); }
GEMMSIM_HD double mul_odd(double a, double b) { return odd_of(__dmul_rd(a, b), __dmul_ru(a, b)); }
GEMMSIM_HD float add_odd(float a, float b) { return odd_of(__fadd_rd(a, b), __fadd_ru(a, b)); }
GEMMSIM_HD double add_odd(double a, double b) { return odd_of(__dadd_rd(a, b), __dadd_ru(a, b)); }
#else
// The carrier as a Cast, for exact integer arithmetic on the host.
template <class T> constexpr Cast carrier_cast(int mode) {
    const bool wide = sizeof(T) == 8;
    const double inf = number(0x7FFull << 52), hi = wide ? 0x1.fffffffffffffp1023 : 0x1.fffffep127;
    return Cast{.p = wide ? 53 : 24,
                .emin = wide ? -1022 : -126,
                .mode = mode,
                .rbits = 0,
                .flags = PRESENT | NEG_ZERO,
                .emax = wide ? 1023 : 127,
                .lo = -hi,
                .hi = hi,
                .over_neg = -hi,
                .over_pos = hi,
                .inf_neg = -inf,
                .inf_pos = inf};
}
template <class T> inline T fma_by(T a, T b, T c, int mode) {
    return (T)fused_step((double)a, (double)b, (double)c, carrier_cast<T>(mode), 0);
}
template <class T> inline T mul_by(T a, T b, int mode) { return (T)product_step((double)a, (double)b, carrier_cast<T>(mode), 0); }
template <class T> inline T add_by(T a, T b, int mode) { return (T)sum_step((double)a, (double)b, carrier_cast<T>(mode), 0); }
template <class T> inline T mul_rz(T a, T b) { return mul_by(a, b, RTZ); }
template <class T> inline T fma_odd(T a, T b, T c) { return fma_by(a, b, c, RO); }
template <class T> inline T mul_odd(T a, T b) { return mul_by(a, b, RO); }
template <class T> inline T add_odd(T a, T b) { return add_by(a, b, RO); }
#endif

}  // namespace gemmsim
