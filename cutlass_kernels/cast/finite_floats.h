// Rounds groups of elements to floats without codes for infinity and NaN, single or in blocks under a power of two. It also rounds
// to blocks of integers under a float scale. The kernels of cast/block_float.h call it. It computes as the CPU library does
// (cpu/casts/scaled_blocks.cpp): in binary64, where powers of two leave everything exact, with quotients by a scale in binary32.
#pragma once
#include "gemmsim/device/storage.h"
#include "gemmsim/exact.h"

namespace gemmsim {

// The format of elements and scales. Its mode is never below RNE or above SRC.
struct FiniteFloat {
    double max;  // infinity: the carrier overflows
    int32_t trailing, emin, mode;
    bool flush, absolute;  // flush: nothing below 2^emin; absolute: magnitudes alone
};

GEMMSIM_HD double whole_part(double x) {
#if defined(__CUDA_ARCH__)
    return ::trunc(x);
#else
    return __builtin_trunc(x);
#endif
}
GEMMSIM_HD double magnitude_of(double x) { return double_of(bits_of(x) & ~(1ull << 63)); }
GEMMSIM_HD double signed_like(double magnitude, double v) { return double_of(bits_of(magnitude) | (bits_of(v) & 1ull << 63)); }
GEMMSIM_HD double two_to(int e) { return double_of((uint64_t)(1023 + e) << 52); }
GEMMSIM_HD double nearest_whole(double t) { return (t + 0x1.8p52) - 0x1.8p52; }  // |t| < 2^51, or infinite

// Whether the magnitude w + f is rounded up from its whole part w. `rest`: a fraction exists, though it may be too small for f.
template <int MODE, int RBITS> GEMMSIM_HD bool goes_up(double v, double w, double f, bool rest, uint32_t R) {
    const double scale = two_to(MODE >= SR ? RBITS : 0), r = (double)R;
    switch (MODE) {
        case RNA: return f >= 0.5;
        case RND: return v < 0 ? f >= 0.5 : f > 0.5;
        case RNU: return v > 0 ? f >= 0.5 : f > 0.5;
        case RU: return rest && v > 0;
        case RD: return rest && v < 0;
        case RO: return rest && nearest_whole(w * 0.5) == w * 0.5;
        case SR: return whole_part(f * scale) + r >= scale;
        case SRB: return whole_part(f * scale * 2) + 2 * r + 1 >= 2 * scale;
        case SRC: return nearest_whole(f * scale) + r >= scale;
        default: return false;
    }
}

// Rounds v to F, for |v| < 2^900, infinity or NaN. Without fraction bits a tie depends on the exponent's low bit.
template <FiniteFloat F, int RBITS> GEMMSIM_HD double round_finite(double v, uint32_t R) {
    constexpr uint64_t exponents = 0x7FFull << 52;
    const double a = magnitude_of(v);
    const uint64_t field = bits_of(a) & exponents, least = (uint64_t)(1023 + F.emin) << 52;
    const uint64_t e = field > least ? field : least, quantum = e - ((uint64_t)F.trailing << 52);
    const double t = v * double_of((2046ull << 52) - quantum);
    double r;
    if constexpr (F.mode == RNE && F.trailing != 0) {
        r = nearest_whole(t);
    } else {
        const double w = whole_part(t), f = magnitude_of(t - w);
        const bool odd = e >> 52 & 1;  // float64's bias is odd, like binary32's
        const bool up = F.mode == RNE ? f > 0.5 || (f == 0.5 && odd) : goes_up<F.mode, RBITS>(v, w, f, f > 0, R);
        r = up ? w + signed_like(1.0, v) : w;
    }
    double z = r * double_of(quantum);
    if (bits_of(a) == exponents || magnitude_of(z) > F.max) z = signed_like(F.max, v);
    if (F.flush && a < two_to(F.emin)) z = 0.0;
    if (F.absolute) z = magnitude_of(z);
    return v == v ? z + 0.0 : canonical_nan();
}

// x / c as an integer of magnitude up to `limit`, times `scale`. Each step is rounded in binary32.
template <int MODE, int RBITS> GEMMSIM_HD float round_quotient(float x, float c, float scale, double limit, uint32_t R) {
#if defined(__CUDA_ARCH__)
    const double t = (double)__fdiv_rn(x, c);
#else
    const double t = (double)(x / c);
#endif
    double r;
    if constexpr (MODE == RNE) {
        r = nearest_whole(t);
    } else {
        const double w = whole_part(t), f = magnitude_of(t - w);
        r = goes_up<MODE, RBITS>(t, w, f, f > 0, R) ? w + signed_like(1.0, t) : w;
    }
    r = r > limit ? limit : r;
    r = r < -limit ? -limit : r;
    return t == t ? add_rn(mul_rn((float)r, scale), 0.0f) : quiet_nan<float>();
}

}  // namespace gemmsim
