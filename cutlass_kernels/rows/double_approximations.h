// Double-precision values of the functions with bounds of their errors: the fast path of a correctly rounded step.
//
// If value - error and value + error round to the same number of the step's format, the exact value between them rounds to it, too.
// The reason is that every rounding is monotonic (Ziv, ACM TOMS 17(3), 1991). Otherwise functions.h decides. The bounds are at
// least twice those of the operations used, each of which is within 2^-53, relative. Constants and truncated series add less than
// 2^-56. P is a policy: double and bool, or vectors of them, with fma, selection and bit casts.
#pragma once
#include "rows/functions.h"

namespace gemmsim::rows {

template <class P> struct Approximation {
    typename P::V value, error;
};

// e^x for |x| <= 700, within 2^-50, relative.
template <class P> GEMMSIM_HD typename P::V fast_exp(typename P::V x) {
    typedef typename P::V V;
    const V magic = P::splat(0x1.8p52), t = P::fma(x, P::splat(0x1.71547652b82fep+0), magic), k = t - magic;
    const V r = P::fma(k, P::splat(-0x1.abc9e3b39803fp-56), P::fma(k, P::splat(-0x1.62e42fefa39efp-1), x));
    const double inverse[14] = {0x1p0,
                                0x1p0,
                                0x1p-1,
                                0x1.5555555555555p-3,
                                0x1.5555555555555p-5,
                                0x1.1111111111111p-7,
                                0x1.6c16c16c16c17p-10,
                                0x1.a01a01a01a01ap-13,
                                0x1.a01a01a01a01ap-16,
                                0x1.71de3a556c734p-19,
                                0x1.27e4fb7789f5cp-22,
                                0x1.ae64567f544e4p-26,
                                0x1.1eed8eff8d898p-29,
                                0x1.6124613a86d09p-33};  // 1 / n!
    V y = P::splat(inverse[13]);
    for (int n = 12; n >= 0; --n) y = P::fma(y, r, P::splat(inverse[n]));
    return P::of(P::bits(y) + (P::bits(t) << 52));
}

template <class P> GEMMSIM_HD typename P::V clamped(typename P::V x, double low, double high) {
    x = P::choose(P::less(x, P::splat(low)), P::splat(low), x);
    return P::choose(P::less(P::splat(high), x), P::splat(high), x);
}

// ln x = k ln 2 + 2 atanh(s) of a positive normal number. The error is within 2^-48, relative.
template <class P> GEMMSIM_HD typename P::V fast_log(typename P::V x) {
    typedef typename P::V V;
    typedef typename P::U U;
    const U u = P::bits(x), shifted = u - P::unsigned_splat(0x3FE8000000000000ull);  // m from 3/4 to 3/2
    const V m = P::of(u - (shifted & P::unsigned_splat(0xFFF0000000000000ull)));
    const V k = P::of(P::bits(P::splat(0x1.8p52)) + P::exponent(shifted)) - P::splat(0x1.8p52);
    const V f = m - P::splat(1.0), s = f / (m + P::splat(1.0)), z = s * s;
    V p = P::splat(1.0 / 25);
    for (int n = 23; n >= 3; n -= 2) p = P::fma(p, z, P::splat(1.0 / n));
    const V tail = s * z * p * P::splat(2.0);  // 2 s = f - s f
    const V sum = tail + (f - s * f);
    return P::fma(k, P::splat(0x1.62e42fefa39efp-1), P::fma(k, P::splat(0x1.abc9e3b39803fp-56), sum));
}

// tanh u for u from 0 to 40: (1 - e^-2u) / (1 + e^-2u), or the series u - u^3/3 + ... for small u. The error is within 2^-46,
// relative.
template <class P> GEMMSIM_HD typename P::V fast_tanh(typename P::V u) {
    typedef typename P::V V;
    const V t = fast_exp<P>(P::splat(-2.0) * u), one = P::splat(1.0), z = u * u;
    const double c[10] = {-0x1.5555555555555p-2,  0x1.1111111111111p-3, -0x1.ba1ba1ba1ba1cp-5,  0x1.664f4882c10fap-6,
                          -0x1.226e355e6c23dp-7,  0x1.d6d3d0e157de0p-9, -0x1.7da36452b75e3p-10, 0x1.3558248036744p-11,
                          -0x1.f57d7734d1664p-13, 0x1.967e18afcafadp-14};
    V p = P::splat(c[9]);
    for (int n = 8; n >= 0; --n) p = P::fma(p, z, P::splat(c[n]));
    return P::choose(P::less(u, P::splat(0.09375)), P::fma(u * z, p, u), (one - t) / (one + t));
}

// erf(x / sqrt 2) for 0 <= x <= 9, where x^2 is exact or nearly so: the series of functions.h in nested form. The error is within
// 2^-44, relative.
template <class P> GEMMSIM_HD typename P::V fast_erf(typename P::V x) {
    typedef typename P::V V;
    const V z = x * x, one = P::splat(1.0);
    const int terms = P::any(P::less(P::splat(4.0), x)) ? 125 : P::any(P::less(P::splat(1.5), x)) ? 55 : 25;
    V s = one;
    for (int n = terms; n >= 1; --n) s = P::fma(z * P::splat(1.0 / (2 * n + 1)), s, one);
    return x * s * fast_exp<P>(P::splat(-0.5) * z) * P::splat(0x1.9884533d43651p-1);
}

template <class P> GEMMSIM_HD typename P::V magnitude(typename P::V x) { return P::of(P::bits(x) & P::unsigned_splat(~(1ull << 63))); }
template <class P> GEMMSIM_HD typename P::V with_sign(typename P::V m, typename P::V x) {
    return P::of(P::bits(m) | (P::bits(x) & P::unsigned_splat(1ull << 63)));
}

// Approximates the functions EXP to POW at numbers that exact_case does not decide.
template <class P> GEMMSIM_HD Approximation<P> approximate(int f, typename P::V a, typename P::V b) {
    typedef typename P::V V;
    const V one = P::splat(1.0), m = magnitude<P>(a);
    if (f == EXP) {
        const V y = fast_exp<P>(clamped<P>(a, -700, 700));
        const V wild = P::choose(P::less(a, P::splat(-700.0)), y, P::splat(1e308));
        return {y, P::choose(P::less(P::splat(700.0), m), wild, y * P::splat(0x1p-49))};
    }
    if (f == LOG) {
        const V y = fast_log<P>(P::choose(P::less(a, P::splat(0x1p-1000)), one, a));
        return {y, P::choose(P::less(a, P::splat(0x1p-1000)), P::splat(1e308), magnitude<P>(y) * P::splat(0x1p-47))};
    }
    if (f == LOG_ADD) {
        const auto swap = P::less(a, b);
        const V hi = P::choose(swap, b, a), lo = P::choose(swap, a, b), e = fast_exp<P>(clamped<P>(lo - hi, -700, 0));
        const V u = one + e, l = fast_log<P>(u) + (e - (u - one)) / u, y = hi + l;  // ln(1 + e), relative
        const V gap = magnitude<P>(hi - lo) * P::splat(0x1p-51) + P::splat(0x1p-46);  // relative error of e and of l
        return {y, P::fma(e, gap, magnitude<P>(y) * P::splat(0x1p-51))};
    }
    if (f == TANH || f == TANH_CUBIC) {
        V u = m;
        if (f == TANH_CUBIC) u = P::splat(0x1.9884533d43651p-1) * P::fma(P::splat(0.044715) * m * m, m, m);
        const V y = fast_tanh<P>(clamped<P>(u, 0, 40));
        return {with_sign<P>(y, a), y * P::splat(0x1p-45)};
    }
    if (f == ERF) {
        const V y = fast_erf<P>(clamped<P>(m, 0, 9));
        return {with_sign<P>(y, a), y * P::splat(0x1p-43)};
    }
    if (f == DENSITY) {
        const V c = clamped<P>(m, 0, 37), y = c * fast_exp<P>(P::splat(-0.5) * c * c) * P::splat(0x1.9884533d43651p-2);
        return {with_sign<P>(y, a), P::choose(P::less(P::splat(37.0), m), y, y * P::splat(0x1p-43))};
    }
    if (f == SIGMOID) {
        const V e = fast_exp<P>(-clamped<P>(m, 0, 700));
        const V y = P::choose(P::less(a, P::splat(0.0)), e, one) / (one + e);
        return {y, P::choose(P::less(a, P::splat(-700.0)), y, y * P::splat(0x1p-48))};
    }
    const V t = b * fast_log<P>(P::choose(P::less(m, P::splat(0x1p-1000)), one, m)), y = fast_exp<P>(clamped<P>(t, -700, 700));
    const auto wild = P::less(P::splat(690.0), magnitude<P>(t));
    const V bound = P::choose(P::less(m, P::splat(0x1p-1000)), P::splat(1e308), y * P::splat(0x1p-37));
    return {with_sign<P>(y, a), P::choose(wild, P::splat(1e308), bound)};
}

// Decides results that are exact or have no value to round: NaN, infinities, zeros, and functions at them. The scalar and the
// vector code share it. Returns whether (a, b) is such a case, and sets its value.
GEMMSIM_HD bool exact_case(int f, double a, double b, double* y) {
    const double inf = double_of(0x7FF0000000000000ull), nan = canonical_nan();
    const bool neg = sign_of(a);
    if (f == POW) {
        const double size = b < 0 ? -b : b;
        const bool whole = size >= 0x1p53 || (double)(int64_t)size == size, odd = whole && size < 0x1p53 && ((int64_t)size & 1);
        if (b == 0 || a == 1) return *y = 1, true;
        if (is_nan(a) || is_nan(b)) return *y = nan, true;
        if (a == 0 || is_inf(a)) {
            const double r = (a == 0) == (b < 0) ? inf : 0;
            return *y = neg && odd ? -r : r, true;
        }
        if (is_inf(b)) {
            const double m = neg ? -a : a;
            return *y = m == 1 ? 1 : (m > 1) == (b > 0) ? inf : 0, true;
        }
        if (neg && !whole) return *y = nan, true;
        return false;
    }
    if (is_nan(a) || (f == LOG_ADD && is_nan(b))) return *y = nan, true;
    if (f == LOG_ADD) {
        if (is_inf(a) || is_inf(b)) return *y = a == inf || b == inf ? inf : is_inf(a) ? b : a, true;
        return false;
    }
    switch (f) {
        case EXP: *y = a == 0 ? 1 : neg ? 0 : inf; break;
        case LOG: *y = a == 0 ? -inf : neg ? nan : a == 1 ? 0 : inf; return a == 0 || neg || a == 1 || is_inf(a);
        case TANH:
        case ERF:
        case TANH_CUBIC: *y = a == 0 ? a : neg ? -1 : 1; break;
        case DENSITY: *y = a == 0 ? a : neg ? -0.0 : 0; break;
        default: *y = a == 0 ? 0.5 : neg ? 0 : 1; break;  // SIGMOID
    }
    return a == 0 || is_inf(a);
}

}  // namespace gemmsim::rows
