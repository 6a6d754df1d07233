// Rounding functors: structs with `static T apply(T x)`, all constants folded, the same on host and device. x is exact or rounded
// to odd, so that this is the only rounding. T is float or double. P is the number of significand bits of the result. The carrier has F
// fraction bits, and s = F + 1 - P. "Cost" counts instructions on top of the multiply-add that made x, in float.
//
//   functor         cost  instructions         valid for                               rounding
//   NoRound          0                         everything                              none
//   Split            2    FMUL FFMA            P <= 11 (25), |x| < 2^(BIAS + 1 - s)     nearest even, no target range
//   Magic            3    LOP3 2 FFMA          P <= F - 1, |x| < 2^(BIAS - s)           nearest even, no target range
//   MagicSubnormal   4    + FMNMX              same                                    + subnormals of the target
//   Saturate<R>     +2    2 FMNMX              as R                                    + clamp to [lo, hi] beforehand
//   MagicCast      9-13   + selects            everything                              a whole Cast in nearest even
//   Stochastic       6    FMNMX LOP3 FMUL 3 FFMA  magnitudes, as Magic, BITS <= F      SR, SRB, + subnormals of the target
//   StochasticCast 12-21  + draw, selects      everything                              a whole Cast in SR or SRB
//   ThroughHalf      2    F2F, widening           everything, float                       e5m10: subnormals, infinity
//   ThroughBf16      2    F2F, shift           everything, float                       e8m7: subnormals, infinity
//   Truncate         1    LOP3                 normal results of finite numbers        toward zero, no target range
//   FixedBiased      0    in the FFMA          |value| < 2^22 quanta, float            nearest even on a fixed grid
//   BitRound       9-25   integer              everything (round_bits.h)               a whole Cast in any mode
//
// NaN stays NaN in all of them but Saturate, whose minimum and maximum prefer the number. A loop whose sums may be NaN takes
// MagicCast or BitRound. The sign of zero is lost where the text of a functor says so.
#pragma once
#include "gemmsim/device/round_bits.h"
#include "gemmsim/device/storage.h"

namespace gemmsim {

template <class T> struct NoRound {
    static GEMMSIM_HD T apply(T x) { return x; }
};

// t = x - 2^s x to the carrier's precision is a multiple of one target ulp, and so is 2^s x. Therefore t + 2^s x is the multiple
// nearest to x. A tie goes to the even one, because x's significand is even there (s >= 2). Just above a power of two the spacing
// is half as wide, which is harmless iff s > P + 1. Zero of either sign becomes +0.
template <class T, int P> struct Split {
    static constexpr int S = Carrier<T>::FRACTION + 1 - P;
    static_assert(P >= 2 && S > P + 1, "the grid above a power of two is too fine: use Magic");
    static GEMMSIM_HD T apply(T x) {
        constexpr T scale = power<T>(S);
        return fma_rn(x, scale, mul_rn(x, (T)1 - scale));
    }
};

// x + M - M with M = 1.5 * 2^(e + s), where e is the exponent of x. The last place of the sum x + M is the target's. Zero becomes
// +0.
template <class T, int P> struct Magic {
    static constexpr int S = Carrier<T>::FRACTION + 1 - P;
    static_assert(P >= 1 && S >= 2);
    static GEMMSIM_HD T apply(T x) {
        constexpr T m = (T)1.5 * power<T>(S);
        const T e = from_bits<T>(to_bits(x) & Carrier<T>::EXPONENT);
        return fma_rn(e, -m, fma_rn(e, m, x));
    }
};

// Magic with M at least that of 2^EMIN. Zero becomes +0, and so does every number that rounds to zero.
template <class T, int P, int EMIN> struct MagicSubnormal {
    static constexpr int S = Carrier<T>::FRACTION + 1 - P;
    static_assert(P >= 1 && S >= 2 && EMIN >= 1 - Carrier<T>::BIAS);
    static GEMMSIM_HD T apply(T x) {
        constexpr T m = (T)1.5 * power<T>(S);
        const T e = max_number(from_bits<T>(to_bits(x) & Carrier<T>::EXPONENT), power<T>(EMIN));
        return fma_rn(e, -m, fma_rn(e, m, x));
    }
};

template <class T, class Round, T LO, T HI> struct Saturate {
    static GEMMSIM_HD T apply(T x) { return Round::apply(min_number(max_number(x, LO), HI)); }
};

// Whether MagicCast rounds to `c` in carrier T: nearest even, with subnormals, and M is finite up to the overflow threshold.
template <class T> GEMMSIM_HD constexpr bool magic_rounds(const Cast& c) {
    typedef Carrier<T> K;
    if (c.mode != RNE || (c.flags & NO_SUBNORMALS) || !carrier_rounds<T>(c)) return false;
    return c.p <= K::FRACTION - 1 && c.emax + 1 + K::FRACTION + 1 - c.p <= K::BIAS;
}

GEMMSIM_HD constexpr bool same_number(double a, double b) { return a == b || (a != a && b != b); }

// A rounded number. Where it is NaN, `value` is arbitrary.
template <class T> struct Rounded {
    T value;
    bool nan;
};

// Surrounds a rounding that needs numbers of limited size: `before` bounds x, and `after` handles overflow, infinities and NaN.
// Zero keeps its sign where the format has a negative zero. A NaN result is the canonical one.
template <class T, Cast C> struct Guard {
    static constexpr bool CLAMPS = C.over_pos == C.hi && C.over_neg == C.lo;
    static constexpr bool INFINITY_IS_OVERFLOW = same_number(C.inf_pos, C.over_pos) && same_number(C.inf_neg, C.over_neg);

    static GEMMSIM_HD T before(T x) {
        constexpr T past = power<T>(C.emax + 1);
        constexpr T lo = CLAMPS ? (T)C.lo : -past, hi = CLAMPS ? (T)C.hi : past;
        return min_number(max_number(x, lo), hi);
    }

    static GEMMSIM_HD T after(T x, T r) {
        if constexpr (C.flags & NEG_ZERO) r = from_bits<T>(to_bits(r) | (to_bits(x) & Carrier<T>::SIGN));
        if constexpr (!CLAMPS) {
            if (r > (T)C.hi) r = (T)C.over_pos;
            if (r < (T)C.lo) r = (T)C.over_neg;
        }
        if constexpr (!INFINITY_IS_OVERFLOW) {
            if (x == from_bits<T>(Carrier<T>::EXPONENT)) r = (T)C.inf_pos;
            if (x == -from_bits<T>(Carrier<T>::EXPONENT)) r = (T)C.inf_neg;
        }
        return x != x ? quiet_nan<T>() : r;
    }

    // The same where both signs are treated alike, for x's magnitude and for the rounded magnitude.
    static constexpr bool SYMMETRIC = C.lo == -C.hi && same_number(C.over_neg, -C.over_pos) && same_number(C.inf_neg, -C.inf_pos);
    static GEMMSIM_HD T magnitude_before(T x) { return min_number(without_sign(x), CLAMPS ? (T)C.hi : power<T>(C.emax + 1)); }
    static GEMMSIM_HD Rounded<T> after_magnitude(T x, T r) {
        static_assert(SYMMETRIC);
        bool nan = x != x;
        if constexpr (!CLAMPS) {
            const bool over = r > (T)C.hi;
            if constexpr (C.over_pos != C.over_pos) nan = nan || over;
            else r = over ? (T)C.over_pos : r;
        }
        if constexpr (!INFINITY_IS_OVERFLOW) {
            const bool infinite = without_sign(x) == from_bits<T>(Carrier<T>::EXPONENT);
            if constexpr (C.inf_pos != C.inf_pos) nan = nan || infinite;
            else r = infinite ? (T)C.inf_pos : r;
        }
        r = from_bits<T>(to_bits(r) | (to_bits(x) & Carrier<T>::SIGN));
        if constexpr (!(C.flags & NEG_ZERO)) r = add_rn(r, (T)0);
        return {r, nan};
    }
};

// Rounds any input to a nearest-even Cast.
template <class T, Cast C> struct MagicCast {
    static_assert(magic_rounds<T>(C));
    static GEMMSIM_HD T apply(T x) {
        typedef Guard<T, C> G;
        return G::after(x, MagicSubnormal<T, C.p, C.emin>::apply(G::before(x)));
    }
};

// Rounds up iff floor(nu * 2^r) + R >= 2^r, where nu is the discarded fraction of an ulp. It adds R * 2^-r ulps toward zero and
// truncates the sum at the ulp. The carrier truncates the sum first, which changes nothing because the format's numbers are carrier
// numbers. x is a magnitude. draw: R * 2^(BITS - r). SRB is the same with R + 1/2.
template <class T, int P, int EMIN, int BITS> struct Stochastic {
    static constexpr int S = Carrier<T>::FRACTION + 1 - P;
    static_assert(P >= 1 && S >= 2 && BITS <= Carrier<T>::FRACTION);
    static_assert(EMIN + 1 - P - BITS >= 1 - Carrier<T>::BIAS - Carrier<T>::FRACTION, "a share of the ulp underflows");
    static GEMMSIM_HD T apply(T x, T draw) {
        constexpr T m = power<T>(S);
        const T e = max_number(from_bits<T>(to_bits(x) & Carrier<T>::EXPONENT), power<T>(EMIN));
        return fma_rn(e, -m, fma_rz(e, m, fma_rz(draw, mul_rn(e, power<T>(1 - P - BITS)), x)));
    }
};

// Whether StochasticCast rounds to `c` in carrier T, with draws counted in 2^-bits of an ulp. The conditions are those of
// magic_rounds, and no share of an ulp underflows.
template <class T> GEMMSIM_HD constexpr bool stochastic_rounds(const Cast& c, int bits) {
    typedef Carrier<T> K;
    if ((c.mode != SR && c.mode != SRB) || (c.flags & NO_SUBNORMALS) || !carrier_rounds<T>(c)) return false;
    if (c.emin + 1 - c.p - bits < 1 - K::BIAS - K::FRACTION || bits > K::FRACTION) return false;
    return c.p <= K::FRACTION - 1 && c.emax + 1 + K::FRACTION + 1 - c.p <= K::BIAS;
}
template <class T> GEMMSIM_HD constexpr bool stochastic_rounds(const Cast& c) { return stochastic_rounds<T>(c, random_bits(c)); }

// Rounds any input to a Cast of mode SR or SRB.
template <class T, Cast C> struct StochasticCast {
    typedef Guard<T, C> G;

    // R * 2^(BITS - rbits), which is below 2^F, as a number, without the slow conversion instruction. For SRB it adds the half.
    template <int BITS> static GEMMSIM_HD T draw(uint32_t n) {
        constexpr T offset = power<T>(Carrier<T>::FRACTION), half = C.mode == SRB ? power<T>(BITS - C.rbits - 1) : (T)0;
        return add_rn(from_bits<T>(to_bits(offset) | n), half - offset);
    }

    template <int BITS> static GEMMSIM_HD Rounded<T> rounded(T x, T draw) {
        static_assert(stochastic_rounds<T>(C, C.mode == SRB && BITS == C.rbits ? BITS + 1 : BITS));
        typedef Stochastic<T, C.p, C.emin, BITS> Round;
        if constexpr (G::SYMMETRIC) {
            return G::after_magnitude(x, Round::apply(G::magnitude_before(x), draw));
        } else {
            const T limited = G::before(x);
            T r = from_bits<T>(to_bits(Round::apply(without_sign(limited), draw)) | (to_bits(limited) & Carrier<T>::SIGN));
            if constexpr (!(C.flags & NEG_ZERO)) r = add_rn(r, (T)0);
            r = G::after(x, r);
            return {r, r != r};
        }
    }

    static GEMMSIM_HD T apply(T x, uint32_t R) {
        const Rounded<T> r = rounded<C.rbits>(x, draw<C.rbits>(R));
        return r.nan ? quiet_nan<T>() : r.value;
    }
};

struct ThroughHalf {
    static GEMMSIM_HD float apply(float x) { return half_value(half_any_nan(x)); }
};

struct ThroughBf16 {
    static GEMMSIM_HD float apply(float x) { return bf16_value(bf16_any_nan(x)); }
};

// Truncates to P bits. Zero keeps its sign. A subnormal of the carrier keeps its P - 1 leading fraction bits.
template <class T, int P> struct Truncate {
    static constexpr Bits<T> MASK = ~(((Bits<T>)1 << (Carrier<T>::FRACTION + 1 - P)) - 1);
    static GEMMSIM_HD T apply(T x) { return from_bits<T>(to_bits(x) & MASK); }
};

// The register stores BIAS + value with BIAS = 1.5 * 2^(23 - FRAC). Its last place is the quantum 2^-FRAC, so the multiply-add
// itself rounds. `value` recovers the number. A zero is +0.
template <int FRAC> struct FixedBiased {
    static constexpr float BIAS = 1.5f * power<float>(Carrier<float>::FRACTION - FRAC);
    static GEMMSIM_HD float apply(float x) { return x; }
    static GEMMSIM_HD float start(float value) { return add_rn(value, BIAS); }
    static GEMMSIM_HD float value(float held) { return add_rn(held, -BIAS); }
};

template <class T, Cast C> struct BitRound {
    static GEMMSIM_HD T apply(T x) { return round_bits<T, C>(x, 0); }
};

}  // namespace gemmsim
