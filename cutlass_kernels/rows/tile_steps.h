// The steps of row operations with casts that are compile-time constants. Each step means the same as in rows/scalar_lane.h.
//
// Numbers inside float32's range are computed in double, rounded to odd, and then rounded once to a format of up to 50 bits
// (docs/design/rows.md). All others take exact.h. Functions take the fast path of double_approximations.h, and call functions.h
// where that does not decide.
#pragma once
#include "gemmsim/device/round_to_odd.h"
#include "gemmsim/device/round_cast.h"
#include "rows/scalar_lane.h"
#include "rows/tile_config.h"

namespace gemmsim::rows {

template <int F, Cast C> GEMMSIM_COLD double undecided(double a, double b, uint32_t R) {
    constexpr Cast c = C;
    return rounded(F, a, b, c, R);
}

GEMMSIM_HD double square_root(double x) {
#if defined(__CUDACC_RTC__)
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

// `y` is the double nearest to an exact value, and `rest` has the sign of the exact value minus y. Returns y, or its odd neighbour
// on that side if y is even. Infinity and exact results stay unchanged.
GEMMSIM_HD double odd_neighbour(double y, double rest) {
    const uint64_t u = bits_of(y), exponent = 0x7FFull << 52;
    if (!(rest < 0 || rest > 0) || (u & exponent) == exponent || (u & 1)) return y;
    return double_of((rest > 0) == (y > 0) ? u + 1 : u - 1);
}

template <TileConfig K> struct Steps {
    uint64_t seed;

    // Whether all products of operands are exact in double.
    static constexpr bool exact_products() {
        for (const Cast& c : K.steps)
            if ((c.flags & PRESENT) && c.p > 26) return false;
        return true;
    }

    // `at`: the row-major index of the random bits.
    template <int S> GEMMSIM_HD uint32_t draw(uint64_t at) const {
        if constexpr (K.steps[S].mode >= SR) return draw_element(seed, at, TILE_SITE + S, K.steps[S].rbits);
        else return 0;
    }
    template <int S> GEMMSIM_HD double round(double x, uint64_t at) const { return (double)round_cast<K.steps[S]>(x, draw<S>(at)); }

    template <int S> GEMMSIM_HD double add(double a, double b, uint64_t at) const {
        constexpr Cast c = K.steps[S];
        if constexpr (K.wide) return sum_step(a, b, c, draw<S>(at));
        else return round<S>(add_odd(a, b), at);
    }
    template <int S> GEMMSIM_HD double mul(double a, double b, uint64_t at) const {
        constexpr Cast c = K.steps[S];
        if constexpr (K.wide) return product_step(a, b, c, draw<S>(at));
        else if constexpr (exact_products()) return round<S>(a * b, at);
        else return round<S>(mul_odd(a, b), at);
    }
    template <int S> GEMMSIM_HD double div(double a, double b, uint64_t at) const {
        const double q = a / b;
        if constexpr (K.wide) {
            const bool special = is_nan(a) || is_nan(b) || is_inf(a) || is_inf(b) || a == 0 || b == 0;
            return special ? round<S>(q, at) : undecided<DIV, K.steps[S]>(a, b, draw<S>(at));
        } else {
            const double rest = fma_rn(-q, b, a);
            return round<S>(odd_neighbour(q, sign_of(b) ? -rest : rest), at);
        }
    }
    template <int S> GEMMSIM_HD double root(double a, uint64_t at) const {
        if constexpr (K.wide) {
            if (a == 0 || is_nan(a) || (is_inf(a) && a > 0)) return round<S>(a, at);
            return a < 0 ? canonical_nan() : undecided<SQRT, K.steps[S]>(a, 0.0, draw<S>(at));
        } else {
            const double q = square_root(a);
            return round<S>(odd_neighbour(q, fma_rn(-q, q, a)), at);
        }
    }

    // f(a, b): the fast value if both ends of its interval round alike, otherwise the exact one.
    template <int F, int S> GEMMSIM_HD double function(double a, double b, uint64_t at) const {
        const uint32_t R = draw<S>(at);
        double y;
        if (exact_case(F, a, b, &y)) return (double)round_cast<K.steps[S]>(y, R);
        const double size = b < 0 ? -b : b, base = F == POW && a < 0 ? -a : a;
        const bool negative = F == POW && a < 0 && size < 0x1p53 && ((int64_t)size & 1);
        const Approximation<One> q = approximate<One>(F, base, b);
        const double value = negative ? -q.value : q.value;
        const double low = (double)round_cast<K.steps[S]>(value - q.error, R), high = (double)round_cast<K.steps[S]>(value + q.error, R);
        if (bits_of(low) == bits_of(high)) return low;
        return undecided<F, K.steps[S]>(negative ? a : base, b, R);
    }
};

}  // namespace gemmsim::rows
