// This file has what casts of blocks share: a block's largest magnitude, powers of two, and the direction in which a
// quotient is rounded.
#pragma once
#include "casts/elementwise.h"

namespace gemmsim::NS {

// The exponent of a block whose finite elements are all zero: the largest 8-bit exponent.
constexpr int NO_EXPONENT = 127;

[[maybe_unused]] static double power(int e) { return double_of((uint64_t)(1023 + e) << 52); }

[[maybe_unused]] static int exponent_of(uint64_t largest) {
    if (largest >> 52) return (int)(largest >> 52) - 1023;
    return largest ? 63 - __builtin_clzll(largest) - 1074 : NO_EXPONENT;
}

// N is the length if the compiler knows it, else 0.
template <class C, int N = 0> INL uint64_t largest_of(const typename C::T* x, int64_t n) {
    typename C::I most = 0;
    for (int64_t i = 0; i < (N ? N : n); ++i) {
        typename C::U u;
        memcpy(&u, x + i, sizeof u);
        const typename C::I mag = (typename C::I)(u & ~C::SIGN), finite = mag < (typename C::I)C::EXP ? mag : 0;
        most = finite > most ? finite : most;
    }
    typename C::T value;
    memcpy(&value, &most, sizeof value);
    return bits_of((double)value);
}

INL double nearest(double t) {  // |t| < 2^51
    const double magic = 0x1.8p52;
    return (t + magic) - magic;
}

// Whether |t| = |w| + f rounds up from its whole part w. `rest`: there is a fraction, which t may be too small to show.
template <int MODE> INL bool goes_up(double v, double w, double f, bool rest, double scale, double R) {
    if (MODE == RNA) return f >= 0.5;
    if (MODE == RND) return v < 0 ? f >= 0.5 : f > 0.5;
    if (MODE == RNU) return v > 0 ? f >= 0.5 : f > 0.5;
    if (MODE == RU) return rest && v > 0;
    if (MODE == RD) return rest && v < 0;
    if (MODE == RO) return rest && nearest(w * 0.5) == w * 0.5;
    if (MODE == SR) return floor(f * scale) + R >= scale;
    if (MODE == SRB) return floor(f * scale * 2) + 2 * R + 1 >= 2 * scale;
    if (MODE == SRC) return nearest(f * scale) + R >= scale;
    return false;
}

[[maybe_unused]] static int64_t bytes_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

}  // namespace gemmsim::NS
