// This file computes the steps of row operations on vectors of floats, twice as many rows as rows_lanes.h. It applies
// to nearest-even formats of few bits and ordinary data. Where a value leaves these conditions (overflow, NaN,
// infinity), `left` records it and the fallback computes the rows again in doubles. Nothing here has to handle such
// values.
//
// Conditions: every step but the last rounds to a format of up to 14 bits, with quanta of at least 2^-60 and numbers
// below 2^60. Data are zero or from 2^-60 to 2^60 in magnitude. Then no residual underflows, and a number rounded to
// odd at 24 bits rounds as the exact number does.
//
// ODD = false: data and steps are numbers of one format of p <= 11 bits, subnormal numbers included. Because 24 >= 2 *
// 11 + 2, a nearest sum, product or quotient rounds as the exact one does (Figueroa, "When is double rounding
// innocuous?", SIGNUM Newsletter 30(3), 1995). Below the smallest normal number this holds too:
// sums are multiples of the quantum and exact;
// products have at most 22 bits and are exact;
// a quotient's relative distance from a number of up to 12 bits (a tie or a bound of subnormals) is at least 2^-23, so
// that the nearest number of 24 bits stays on its side.
#pragma once
#include "tiles/philox_vec.h"
#include "rows/rows_lanes.h"

namespace gemmsim::NS {

enum RowNarrowWay : int32_t { NARROW_SPLIT = 0, NARROW_FLOAT = 1 };

INL bool any_of(C32::VI m) {
#if ISA_AVX512
    return _mm512_movepi32_mask((__m512i)m) != 0;
#elif ISA_AVX2
    return _mm256_movemask_ps((__m256)m) != 0;
#else
    int32_t r = 0;
    for (int i = 0; i < (int)C32::L; ++i) r |= m[i];
    return r != 0;
#endif
}

INL C32::V magnitude_of(C32::V x) { return (C32::V)((C32::VU)x & ~C32::SIGN); }

template <bool ODD> struct NarrowLanes {
    typedef C32::V V;
    typedef C32::VU VU;
    typedef C32::VI VI;
    typedef Vec<float, WIDTH / 2>::type Half;
    enum { COUNT = C32::L };
    const rows::Step* steps;   // way: a RowNarrowWay
    const Const<C32>* consts;
    const VectorLanes* wide;   // the same steps on doubles
    mutable VI left;           // lanes that left the conditions

    INL V splat(double x) { return gemmsim::NS::splat<C32>((float)x); }
    INL V negate(V x) { return (V)((VU)x ^ C32::SIGN); }
    INL V larger(V a, V b) { return vmax(a, b); }

    INL_MEMBER V round(V x, int step, int64_t) const {
        const V limit = steps[step].way == NARROW_FLOAT ? splat(0x1.fffffep127) : consts[step].hi;
        const V r = steps[step].way == NARROW_FLOAT ? x : round_split<C32, true>(x, consts[step]);
        left |= ~(VI)(magnitude_of(r) <= limit);
        return r;
    }
    // Rounds to odd. y is the nearest float to a value y + d, where d has the sign of `rest`. An inexact y with an even
    // last bit moves to its neighbour towards the value.
    INL V to_odd(V y, V rest) {
        const VU u = (VU)y;
        const VI fix = (VI)(rest != (V){}) & (VI)((VU)(u & 1) == (VU){});
        const VI away = (VI)((rest > (V){}) == (y > (V){}));
        return (V)(u + ((VU)fix & (VU)((away & 2) - 1)));
    }
    INL_MEMBER V add(V a, V b, int step, int64_t k) const {
        const bool nearest = !ODD || steps[step].way == NARROW_FLOAT;
        return round(nearest ? a + b : add_odd<C32>(a, b), step, k);
    }
    INL_MEMBER V mul(V a, V b, int step, int64_t k) const {
        if (!ODD || steps[step].way == NARROW_FLOAT) return round(a * b, step, k);
        const V q = a * b;
        return round(to_odd(q, vfma(a, b, negate(q))), step, k);
    }
    INL_MEMBER V div(V a, V b, int step, int64_t k) const {
        const V q = a / b;
        if (!ODD || steps[step].way == NARROW_FLOAT) return round(q, step, k);
        const V rest = vfma(negate(q), b, a);
        return round(to_odd(q, (V)((VU)rest ^ ((VU)b & C32::SIGN))), step, k);
    }

    // Double lanes compute the steps that a row has only a few times, and functions without an approximation in floats,
    // for half the rows at a time. These functions are static and not inlined: an object whose address a call knows
    // could not keep `left` in a CPU register.
    template <class F> static inline __attribute__((always_inline)) V in_two_halves(V a, V b, const F& f) {
        Half in[2][2], out[2];
        memcpy(in[0], &a, sizeof a);
        memcpy(in[1], &b, sizeof b);
        for (int i = 0; i < 2; ++i) {
            const C64::V y = f(widened(in[0][i]), widened(in[1][i]));
            out[i] = __builtin_convertvector(y, Half);
        }
        V y;
        memcpy(&y, out, sizeof y);
        return y;
    }
    static __attribute__((noinline)) V wide_sum(const VectorLanes& w, V a, double b, int step) {
        return in_two_halves(a, a, [&](C64::V x, C64::V) { return w.add(x, VectorLanes::splat(b), step, 0); });
    }
    static __attribute__((noinline)) V wide_quotient(const VectorLanes& w, V a, V b, int step) {
        return in_two_halves(a, b, [&](C64::V x, C64::V y) { return w.div(x, y, step, 0); });
    }
    static __attribute__((noinline)) V wide_root(const VectorLanes& w, V a, int step) {
        return in_two_halves(a, a, [&](C64::V x, C64::V) { return w.root(x, step, 0); });
    }
    static __attribute__((noinline)) V wide_function(const VectorLanes& w, int f, V a, V b, int step) {
        return in_two_halves(a, b, [&](C64::V x, C64::V y) { return w.function(f, x, y, step, 0); });
    }
    INL_MEMBER V checked(V y) const {
        left |= ~(VI)(magnitude_of(y) <= splat(0x1p60));
        return y;
    }
    INL_MEMBER V add_number(V a, double b, int step) const { return checked(wide_sum(*wide, a, b, step)); }
    INL_MEMBER V div_once(V a, V b, int step) const { return checked(wide_quotient(*wide, a, b, step)); }
    INL_MEMBER V root(V a, int step, int64_t) const { return checked(wide_root(*wide, a, step)); }
    INL_MEMBER V function_wide(int f, V a, V b, int step) const { return checked(wide_function(*wide, f, a, b, step)); }

    // e^x for |x| <= 80 of up to 14 bits, within 2^-23. x - k ln 2 with 24 bits of ln 2 is exact. The polynomial is
    // within 2^-26 of e^r for |r| <= ln(2) / 2, before its roundings; only the last of these matters.
    INL V fast_exp(V x) {
        const V magic = splat(0x1.8p23), t = vfma(x, splat(0x1.715476p+0), magic), k = t - magic;
        const V r = vfma(k, splat(0x1.05c611p-29), vfma(k, splat(-0x1.62e430p-1), x));
        V y = splat(EXP_4);
        y = vfma(y, r, splat(EXP_3));
        y = vfma(y, r, splat(EXP_2));
        y = vfma(y, r, splat(EXP_1));
        y = vfma(y, r, splat(EXP_0));
        y = vfma(y, r, splat(1.0));
        y = vfma(y, r, splat(1.0));
        return (V)((VU)y + ((VU)t << 23));
    }
    INL_MEMBER V function(int f, V a, V b, int step, int64_t k) const {
        if (f != rows::EXP || steps[step].way == NARROW_FLOAT) return function_wide(f, a, b, step);
        const V y = fast_exp(vmin(splat(80.0), vmax(splat(-80.0), a))), error = splat(0x1p-22);
        const V low = round_split<C32, true>(vfma(negate(y), error, y), consts[step]);
        const V high = round(vfma(y, error, y), step, k);
        return __builtin_expect(any_of((VI)(low != high)), 0) ? function_wide(f, a, b, step) : low;
    }
    // Coefficients of (e^r - 1 - r) / r^2, by interpolation at Chebyshev's points.
    static constexpr double EXP_0 = 0x1p-1, EXP_1 = 0x1.5554dcp-3, EXP_2 = 0x1.555518p-5, EXP_3 = 0x1.120c62p-7, EXP_4 = 0x1.6d11fep-10;
};

}  // namespace gemmsim::NS
