// Computes exact values of the steps of row operations as an integer with a sticky bit, which is rounded once. This path is
// complete but slow: it is the fallback where the fast evaluation cannot decide.
#pragma once
#include "rows/multiprecision.h"

namespace gemmsim::rows {

// The order is part of the C ABI (gemmsim/backends/cpu/rows.py mirrors it).
enum Function : int32_t {
    ADD = 0,
    SUB = 1,
    MUL = 2,
    DIV = 3,
    SQRT = 4,
    EXP = 5,        // e^a
    LOG = 6,        // ln a
    LOG_ADD = 7,    // ln(e^a + e^b)
    TANH = 8,
    ERF = 9,        // erf(a / sqrt 2)
    DENSITY = 10,   // a * exp(-a^2 / 2) / sqrt(2 pi)
    SIGMOID = 11,   // 1 / (1 + e^-a)
    TANH_CUBIC = 12,  // tanh(sqrt(2 / pi) (a + 0.044715 a^3))
    POW = 13,       // a^b
    MAX = 14,
    COPY = 15
};

GEMMSIM_COLD Exact exact_quotient(double a, double b) {
    uint64_t sa, sb;
    int32_t ea, eb;
    split(a, &sa, &ea);
    split(b, &sb, &eb);
    while (sb < (1ull << 52)) {
        sb <<= 1;
        --eb;
    }
    while (sa && sa < (1ull << 52)) {
        sa <<= 1;
        --ea;
    }
    const u128 n = (u128)sa << 60;  // the quotient is below 2^61; 60 more bits follow
    const uint64_t q = (uint64_t)(n / sb), rest = (uint64_t)(n % sb);
    const u128 m = (u128)rest << 60;
    return Exact{((u128)q << 60) | (m / sb), ea - eb - 120, sign_of(a) != sign_of(b), m % sb != 0};
}

GEMMSIM_COLD Exact exact_root(double a) {
    uint64_t sig;
    int32_t exp;
    split(a, &sig, &exp);
    while (sig < (1ull << 52)) {
        sig <<= 1;
        --exp;
    }
    if (exp & 1) {
        sig <<= 1;
        --exp;
    }
    u128 root = 0, rest = 0;  // digit by digit: two bits of the argument give one bit of the root
    for (int i = 0; i < 118; ++i) {
        const uint64_t pair = i < 32 ? sig >> (62 - 2 * i) & 3 : 0;
        rest = rest << 2 | pair;
        const u128 test = root << 2 | 1;
        root <<= 1;
        if (rest >= test) {
            rest -= test;
            root |= 1;
        }
    }
    return Exact{root, exp / 2 + 32 - 118, false, rest != 0};
}

GEMMSIM_COLD Exact next_to_one(bool above) { return next_to(1.0, above); }

GEMMSIM_COLD Exact exact_exp(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-120) return next_to_one(x > 0);
    if (m > 0x1p15) return Exact{1, x > 0 ? 1 << 16 : -(1 << 16), false, true};
    const Power p = wide_exp(wide_magnitude(x), x < 0);
    return wide_exact(p.m, p.exp, false);
}

// ln(e^a + e^b) of finite numbers.
GEMMSIM_COLD Exact exact_log_add(double a, double b) {
    const double hi = a < b ? b : a, lo = a < b ? a : b, gap = hi - lo;  // gap: rounded, only to distinguish the cases
    if (gap > 80) {  // ln(1 + e) is e to a relative 2^-116
        Exact r = exact_sum(exact_value(hi), exact_exp(hi < 0x1p-100 && hi > -0x1p-100 ? lo : lo - hi));
        r.sticky = true;
        return r;
    }
    Wide d = wide_magnitude(gap);
    if (gap < 0x1p100 && hi < 0x1p100 && lo > -0x1p100) {  // the exact difference
        const Signed x = signed_sum(Signed{wide_magnitude(hi), hi < 0}, Signed{wide_magnitude(lo), !(lo < 0)});
        d = x.mag;
    }
    const Wide e = power_value(wide_exp(d, true));
    const Wide log = wide_log_series(wide_div(e, wide_add(wide_integer(2), e)));
    if (hi < 0x1p100 && hi > -0x1p100) {
        const Signed s = signed_sum(Signed{wide_magnitude(hi), hi < 0}, Signed{log, false});
        return wide_exact(s.mag, 0, s.neg);
    }
    Exact r = exact_sum(exact_value(hi), wide_exact(log, 0, false));
    r.sticky = true;
    return r;
}

// tanh of the positive number u, negated if `neg`. Callers handle tiny u themselves.
GEMMSIM_COLD Exact exact_tanh(const Wide& u, bool neg) {
    Exact one = next_to_one(false);
    one.neg = neg;
    if (wide_less(wide_integer(80), u)) return one;
    const Wide t = power_value(wide_exp(wide_doubled(u, 1), true)), unit = wide_integer(1);
    return wide_exact(wide_div(wide_sub(unit, t), wide_add(unit, t)), 0, neg);
}

GEMMSIM_COLD Exact tanh_of(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-60) return next_to(x, false);
    Exact one = next_to_one(false);
    one.neg = x < 0;
    return m > 80 ? one : exact_tanh(wide_magnitude(x), x < 0);
}

// c * x for a constant 1/4 < c < 1 and x of any size, to 118 bits.
GEMMSIM_COLD Exact scaled_constant(double x, const Wide& c) {
    uint64_t sig;
    int32_t exp;
    split(x, &sig, &exp);
    const Wide p = wide_mul(wide_magnitude((double)sig), c);
    return wide_exact(p, exp, sign_of(x));
}

GEMMSIM_COLD Exact tanh_cubic_of(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-60) return scaled_constant(x, wide_sqrt_2_over_pi());
    Exact one = next_to_one(false);
    one.neg = x < 0;
    if (m > 0x1p10) return one;
    const Wide a = wide_magnitude(x);
    const Wide cube = wide_over(wide_times(wide_mul(wide_mul(a, a), a), 44715), 1000000);
    return exact_tanh(wide_mul(wide_add(a, cube), wide_sqrt_2_over_pi()), x < 0);
}

// erf(x / sqrt 2) = sqrt(2 / pi) e^(-x^2/2) (x + x^3/3 + x^5/(3*5) + ...). All terms are positive.
GEMMSIM_COLD Exact erf_of(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-60) return scaled_constant(x, wide_sqrt_2_over_pi());
    Exact one = next_to_one(false);
    one.neg = x < 0;
    if (m > 14) return one;
    const Wide a = wide_magnitude(x), square = wide_mul(a, a);
    Wide sum = a, term = a;
    for (uint32_t n = 3; n < 2000 && !wide_zero(term); n += 2) {
        term = wide_over(wide_mul(term, square), n);
        sum = wide_add(sum, term);
    }
    const Power p = wide_exp(wide_halved(square, 1), true);
    return wide_exact(wide_mul(wide_mul(sum, p.m), wide_sqrt_2_over_pi()), p.exp, x < 0);
}

GEMMSIM_COLD Exact density_of(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-60) return scaled_constant(x, wide_inv_sqrt_2pi());
    if (m > 200) return Exact{1, -(1 << 14), x < 0, true};
    const Wide a = wide_magnitude(x);
    const Power p = wide_exp(wide_halved(wide_mul(a, a), 1), true);
    return wide_exact(wide_mul(wide_mul(a, p.m), wide_inv_sqrt_2pi()), p.exp, x < 0);
}

GEMMSIM_COLD Exact sigmoid_of(double x) {
    const double m = x < 0 ? -x : x;
    if (m < 0x1p-120) {
        Exact r = next_to_one(x > 0);
        r.exp -= 1;
        return r;
    }
    if (m > 0x1p15) return x > 0 ? next_to_one(false) : Exact{1, -(1 << 16), false, true};
    const Power p = wide_exp(wide_magnitude(x), true);  // e^-|x|
    const Wide unit = wide_integer(1), small = power_value(p);
    if (x > 0) {
        if (p.exp < -130) return next_to_one(false);
        return wide_exact(wide_div(unit, wide_add(unit, small)), 0, false);
    }
    return wide_exact(wide_div(p.m, wide_add(unit, small)), p.exp, false);
}

// |a|^b of finite a != 0, negated if `neg`. Powers that are exact are recognised by 96 equal bits.
GEMMSIM_COLD Exact power_of(double a, double b, bool neg) {
    const Signed log = wide_log(a < 0 ? -a : a);
    const double size = b < 0 ? -b : b;
    if (wide_zero(log.mag) || b == 0) return Exact{1, 0, neg, false};
    const bool falls = log.neg != (b < 0);
    if (size > 0x1p40) return Exact{1, falls ? -(1 << 16) : 1 << 16, neg, true};
    if (size < 0x1p-120) {
        Exact r = next_to_one(!falls);
        r.neg = neg;
        return r;
    }
    const Wide t = wide_mul(log.mag, wide_magnitude(size));
    if (wide_less(wide_integer(1u << 15), t)) return Exact{1, falls ? -(1 << 16) : 1 << 16, neg, true};
    Power p = wide_exp(t, falls);
    uint32_t ones = ~0u, any = 0;
    for (int i = 1; i < 4; ++i) {  // places 129 to 224 after the point
        ones &= p.m.w[i];
        any |= p.m.w[i];
    }
    if (any != 0 && ones != ~0u) return wide_exact(p.m, p.exp, neg);
    if (ones == ~0u) {
        Wide half = {};
        half.w[3] = 1u << 31;  // the carry propagates through the ones
        p.m = wide_add(p.m, half);
    }
    for (int i = 0; i < 4; ++i) p.m.w[i] = 0;
    Exact r = wide_exact(p.m, p.exp, neg);
    r.sticky = false;
    return r;
}

// Rounds f(a, b) once to `c`, for finite arguments at which f is finite and not an exact special case.
GEMMSIM_HD double rounded(int f, double a, double b, const Cast& c, uint32_t R) {
    switch (f) {
        case DIV: return round_exact(exact_quotient(a, b), c, R);
        case SQRT: return round_exact(exact_root(a), c, R);
        case EXP: return round_exact(exact_exp(a), c, R);
        case LOG: {
            const Signed s = wide_log(a);
            return round_exact(wide_exact(s.mag, 0, s.neg), c, R);
        }
        case LOG_ADD: return round_exact(exact_log_add(a, b), c, R);
        case TANH: return round_exact(tanh_of(a), c, R);
        case ERF: return round_exact(erf_of(a), c, R);
        case DENSITY: return round_exact(density_of(a), c, R);
        case SIGMOID: return round_exact(sigmoid_of(a), c, R);
        case TANH_CUBIC: return round_exact(tanh_cubic_of(a), c, R);
        default: return round_exact(power_of(a, b, a < 0), c, R);
    }
}

}  // namespace gemmsim::rows
