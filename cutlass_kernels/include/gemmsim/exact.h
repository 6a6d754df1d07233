// Exact scalar arithmetic: a*b + c of doubles as an integer with a sticky bit, and its one rounding to any Cast. It is slow and
// complete: every format with p <= 53 inside the range of float64, every mode, every overflow policy. It is the fallback of the
// vector kernels, which cover the common cases.
#pragma once
#include "gemmsim/types.h"

namespace gemmsim {

typedef unsigned __int128 u128;

// The value (-1)^neg * mag * 2^exp. If sticky, a part strictly between 0 and one unit of mag's last bit adds to the magnitude.
struct Exact {
    u128 mag;
    int32_t exp;
    bool neg, sticky;
};

GEMMSIM_HD uint64_t bits_of(double x) {
#if defined(__CUDA_ARCH__)
    return (uint64_t)__double_as_longlong(x);
#else
    uint64_t u;
    __builtin_memcpy(&u, &x, 8);
    return u;
#endif
}

GEMMSIM_HD double double_of(uint64_t u) {
#if defined(__CUDA_ARCH__)
    return __longlong_as_double((long long)u);
#else
    double x;
    __builtin_memcpy(&x, &u, 8);
    return x;
#endif
}

GEMMSIM_HD bool is_nan(double x) { return x != x; }
GEMMSIM_HD bool is_inf(double x) { return (bits_of(x) << 1) == (0x7FFull << 53); }
GEMMSIM_HD bool sign_of(double x) { return (bits_of(x) >> 63) != 0; }
GEMMSIM_HD double canonical_nan() { return double_of(0x7FF8000000000000ull); }

GEMMSIM_HD int bit_length(u128 x) {
    const uint64_t hi = (uint64_t)(x >> 64), lo = (uint64_t)x;
#if defined(__CUDA_ARCH__)
    return hi ? 128 - __clzll((long long)hi) : (lo ? 64 - __clzll((long long)lo) : 0);
#else
    return hi ? 128 - __builtin_clzll(hi) : (lo ? 64 - __builtin_clzll(lo) : 0);
#endif
}

// Splits a finite double into significand * 2^exponent.
GEMMSIM_HD void split(double x, uint64_t* sig, int32_t* exp) {
    const uint64_t u = bits_of(x), f = u & 0xFFFFFFFFFFFFFull;
    const int e = (int)((u >> 52) & 0x7FF);
    *sig = e ? f | (1ull << 52) : f;
    *exp = (e ? e : 1) - 1075;
}

GEMMSIM_HD Exact exact_value(double x) {
    uint64_t s;
    int32_t e;
    split(x, &s, &e);
    return Exact{(u128)s, e, sign_of(x), false};
}

GEMMSIM_HD Exact exact_product(double a, double b) {
    uint64_t sa, sb;
    int32_t ea, eb;
    split(a, &sa, &ea);
    split(b, &sb, &eb);
    return Exact{(u128)sa * sb, ea + eb, sign_of(a) != sign_of(b), false};
}

// x + y, of at most 125 bits each. The sum is exact unless the operands lie too far apart for 128 bits. Then the smaller one is truncated,
// and a sticky bit marks the loss. No rounding to p <= 53 with r <= 32 random bits can distinguish this from the exact sum, because at
// least 125 bits lie above the sticky one, and such a rounding reads p + r + 2 of them.
// Proof: the larger operand x is shifted to 2^125 <= x < 2^126. A bit of y is lost only if y has a bit below the last one of x. What is
// left of y is then below 2^124, so the truncated sum is at least 2^125 - (2^124 - 1) - 1 = 2^124 in magnitude.
GEMMSIM_HD Exact exact_sum(Exact x, Exact y) {
    if (x.mag == 0 && y.mag == 0) return Exact{0, 0, x.neg && y.neg, false};
    if (x.mag == 0) return y;
    if (y.mag == 0) return x;
    const int top_x = bit_length(x.mag) + x.exp, top_y = bit_length(y.mag) + y.exp;
    if (top_x < top_y) {
        const Exact t = x;
        x = y;
        y = t;
    }
    const int up = 126 - bit_length(x.mag);  // the larger one to bit 125
    x.mag <<= up;
    x.exp -= up;
    const int shift = x.exp - y.exp;  // align y
    bool sticky = false;
    if (shift > 0) {
        if (shift >= 128) {
            y.mag = 0;
            sticky = true;
        } else {
            sticky = (y.mag & (((u128)1 << shift) - 1)) != 0;
            y.mag >>= shift;
        }
    } else {
        y.mag <<= -shift;  // fits: y's top is at most x's top
    }
    if (x.neg == y.neg) return Exact{x.mag + y.mag, x.exp, x.neg, sticky};
    // The remainder stays a positive sticky part: x - (y + part) = (x - y - 1) + (1 - part).
    if (x.mag > y.mag || (x.mag == y.mag && sticky)) {
        const u128 d = x.mag - y.mag;
        return sticky ? Exact{d - 1, x.exp, x.neg, true} : Exact{d, x.exp, x.neg, false};
    }
    if (x.mag == y.mag) return Exact{0, 0, false, false};
    return Exact{y.mag - x.mag, x.exp, y.neg, sticky};
}

// Whether the magnitude is rounded up to the next number. `whole` is the magnitude truncated to quanta. `frac` is the discarded
// fraction of a quantum as an integer over 2^64 (floor). `more`: something nonzero lies below that.
GEMMSIM_HD bool round_up(int mode, int r, uint32_t R, bool neg, bool odd, uint64_t frac, bool more) {
    const uint64_t half = 1ull << 63;
    const bool inexact = frac != 0 || more;
    switch (mode) {
        case RNE: return frac > half || (frac == half && (more || odd));
        case RNA: return frac >= half;
        case RND: return frac > half || (frac == half && (more || neg));
        case RNU: return frac > half || (frac == half && (more || !neg));
        case RTZ: return false;
        case RU: return inexact && !neg;
        case RD: return inexact && neg;
        case RO: return inexact && !odd;
        case SR: return (frac >> (64 - r)) + R >= (1ull << r);
        case SRB: return (frac >> (63 - r)) + 2ull * R + 1 >= (1ull << (r + 1));
        default: {  // SRC: nearest even to r bits, then SR
            uint64_t q = frac >> (64 - r);
            const uint64_t rest = frac << r;
            if (rest > half || (rest == half && (more || (q & 1)))) ++q;
            return q + R >= (1ull << r);
        }
    }
}

GEMMSIM_HD double scale2(double x, int e) {  // x * 2^e, exact when the result is representable
    while (e > 1000) {
        x *= double_of((uint64_t)(1023 + 1000) << 52);
        e -= 1000;
    }
    while (e < -1000) {
        x *= double_of((uint64_t)(1023 - 1000) << 52);
        e += 1000;
    }
    return x * double_of((uint64_t)(1023 + e) << 52);
}

GEMMSIM_HD double finish(const Cast& c, double value, bool neg) {
    double v = neg ? -value : value;
    if (v == 0 && (c.flags & NO_ZERO)) return c.lo;
    if (v > c.hi) return c.over_pos;
    if (v < c.lo) return c.over_neg;
    if (v == 0 && !(c.flags & NEG_ZERO)) return 0.0;
    return v;
}

GEMMSIM_HD double round_grid(const Exact& x, const Cast& c, uint32_t R);

// Rounds an exact finite number once to the cast's format. R is the random draw of the stochastic modes.
GEMMSIM_HD double round_exact(const Exact& x, const Cast& c, uint32_t R) {
    if (c.flags & ANY_GRID) return round_grid(x, c, R);
    if (x.mag == 0 && !x.sticky) return finish(c, 0.0, x.neg);
    const int q0 = c.emin - c.p + 1;  // exponent of the smallest quantum
    int q = q0;
    if (x.mag != 0) {
        const int e = bit_length(x.mag) - 1 + x.exp;
        q = (e > c.emin ? e : c.emin) - c.p + 1;
        if ((c.flags & NO_SUBNORMALS) && e < c.emin) q = c.emin;
    } else if (c.flags & NO_SUBNORMALS) {
        q = c.emin;
    }
    const int drop = q - x.exp;
    uint64_t whole, frac;
    bool more = x.sticky;
    if (drop <= 0) {
        if (-drop >= 64) return finish(c, scale2((double)(uint64_t)x.mag, x.exp), x.neg);
        whole = (uint64_t)(x.mag << -drop);
        frac = 0;
    } else if (drop >= 128) {
        whole = 0;
        const int s = drop - 64;  // bits of mag below the 64-bit fraction
        frac = s >= 128 ? 0 : (uint64_t)(x.mag >> s);
        more = more || (s >= 128 ? x.mag != 0 : (x.mag & (((u128)1 << s) - 1)) != 0);
    } else {
        whole = (uint64_t)(x.mag >> drop);
        const u128 rest = x.mag & (((u128)1 << drop) - 1);
        if (drop <= 64) {
            frac = drop == 64 ? (uint64_t)rest : (uint64_t)rest << (64 - drop);
        } else {
            frac = (uint64_t)(rest >> (drop - 64));
            more = more || (rest & (((u128)1 << (drop - 64)) - 1)) != 0;
        }
    }
    bool odd = (whole & 1) != 0;
    // The parity of a code is that of its binade, counted from 1, or from 0 where the format has no zero.
    if ((c.flags & CODE_PARITY) && whole != 0) odd = ((q - q0 + (c.flags & NO_ZERO ? 0 : 1)) & 1) != 0;
    if (round_up(c.mode, c.rbits, R, x.neg, odd, frac, more)) ++whole;
    return finish(c, scale2((double)whole, q), x.neg);
}

GEMMSIM_HD double round_value(double x, const Cast& c, uint32_t R) {
    if (is_nan(x)) return canonical_nan();
    if (is_inf(x)) return x > 0 ? c.inf_pos : c.inf_neg;
    return round_exact(exact_value(x), c, R);
}

// R_add(s + a*b) with one rounding. Products and sums of non-finite values follow IEEE 754.
GEMMSIM_HD double fused_step(double a, double b, double s, const Cast& add, uint32_t R) {
    const double p = a * b;  // only its class matters here
    if (is_nan(a) || is_nan(b) || is_nan(s) || (is_nan(p))) return canonical_nan();
    if (is_inf(a) || is_inf(b)) {
        if (is_inf(s) && (s > 0) != (p > 0)) return canonical_nan();
        return p > 0 ? add.inf_pos : add.inf_neg;
    }
    if (is_inf(s)) return s > 0 ? add.inf_pos : add.inf_neg;
    return round_exact(exact_sum(exact_product(a, b), exact_value(s)), add, R);
}

GEMMSIM_HD double product_step(double a, double b, const Cast& mul, uint32_t R) {
    const double p = a * b;
    if (is_nan(p)) return canonical_nan();
    if (is_inf(a) || is_inf(b)) return p > 0 ? mul.inf_pos : mul.inf_neg;
    return round_exact(exact_product(a, b), mul, R);
}

GEMMSIM_HD double sum_step(double q, double s, const Cast& add, uint32_t R) {
    if (is_nan(q) || is_nan(s)) return canonical_nan();
    if (is_inf(q)) return is_inf(s) && s != q ? canonical_nan() : (q > 0 ? add.inf_pos : add.inf_neg);
    if (is_inf(s)) return s > 0 ? add.inf_pos : add.inf_neg;
    return round_exact(exact_sum(exact_value(q), exact_value(s)), add, R);
}

}  // namespace gemmsim

#include "gemmsim/grid.h"
