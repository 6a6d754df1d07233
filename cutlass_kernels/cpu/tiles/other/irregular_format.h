// Rounds vectors to irregular value sets (gemmsim/grid.h), in any deterministic mode and SR. The carrier must have every value of the
// format as a normal number.
#pragma once
#include "gemmsim/grid.h"
#include "tiles/rounders.h"

namespace gemmsim::NS {

// The binades of a supernormal format as lane constants, in the carrier's biased exponents.
template <class C> struct Powers {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VI first, last, lowest;
    VU ties_up;  // all ones: a tie between powers of two goes to the larger one
    VU near, rna, rne, pos, neg, odd;
    int rbits;

    INL Powers make(const Cast& c) {
        const Binades b = binades_of(c);
        const auto mask = [](bool on) { return splat_u<C>(on ? ~(typename C::U)0 : 0); };
        Powers k;
        k.first = splat_i<C>(b.first + C::BIAS);
        k.last = splat_i<C>(b.last + C::BIAS);
        k.lowest = splat_i<C>(b.lowest + C::BIAS);
        k.ties_up = mask(!(c.flags & EVEN_EXPONENT));
        k.near = mask(c.mode == RNE || c.mode == RNA);
        k.rna = splat_u<C>(c.mode == RNA);
        k.rne = splat_u<C>(c.mode == RNE);
        k.pos = mask(c.mode == RU);
        k.neg = mask(c.mode == RD);
        k.odd = splat_u<C>(c.mode == RO);
        k.rbits = c.rbits;
        return k;
    }
};

// Decides a stochastic rounding where the quantum is 2^d units of the significand, d > r. It rounds up if and only if
// floor(x / quantum * 2^r) + R >= 2^r.
template <class C> INL typename C::VU share_reaches(typename C::VU sig, typename C::VI d, int r, typename C::VU R) {
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const VU big = splat_u<C>(8 * sizeof(typename C::T) - 1), up = (VU)imax(d - splat_i<C>(r), (VI){});
    const VU kept = sig >> (up > big ? big : up);
    return (VU)(kept + R >= (splat_u<C>(1) << splat_u<C>((typename C::U)r)));
}

// Rounds as round_general (rounders.h), with 1 bit instead of p outside the binades that have p bits.
template <class C, bool STOCHASTIC> INL typename C::V round_powers(typename C::V s, const Const<C>& k, const Powers<C>& g,
                                                                   typename C::VU R) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const VU one = splat_u<C>(1), u = (VU)s, sign = u & C::SIGN, mag = u ^ sign;
    const VI e = imax((VI)(mag >> C::MB), splat_i<C>(1)), mb = splat_i<C>(C::MB);
    const VI inside = (e >= g.first) & (e <= g.last);
    const VI below = (VI)(mag < (VU)(g.lowest << C::MB));
    const VU sig = (mag & C::FRAC) | ((VU)((VU)(mag >> C::MB) != (VU){}) & C::ONE);
    const VI d = inside ? k.base : mb;
    const VU mask = (one << (VU)d) - 1, neg = (VU)((VI)u >> (8 * sizeof(typename C::T) - 1));
    const VU low = (sig >> (VU)d) & one;
    // The parities that decide the tie between powers, and rounding to an odd code. Codes count the binades below the first one of p bits
    // and above the last one.
    const VU exponent_odd = (VU)(e - splat_i<C>(C::BIAS)) & one;
    const VU tie_odd = inside ? low : (g.ties_up & one) | (~g.ties_up & exponent_odd);
    const VU code_odd = inside ? low : ((VU)(e < g.first ? g.first - e : e - g.last - 1) & one);
    const VU dir = (neg & g.neg) | (~neg & g.pos);
    const VU inexact = (VU)((VU)(mag & mask) != (VU){});
    VU inc = (((mask + g.rna) >> 1) & g.near) + (tie_odd & g.rne & mask) + (mask & dir);
    inc += inexact & (mask + 1) & (VU) - (VI)(g.odd & ~code_odd);
    const VU smallest = (VU)(g.lowest << C::MB);
    // If the smallest value is the carrier's smallest normal number, half of it is a subnormal of the carrier.
    const VU half = g.lowest > splat_i<C>(1) ? smallest - C::ONE : splat_u<C>(C::ONE >> 1);
    const VU reach = half - ((g.rna | (g.ties_up & g.rne)) & one);
    VU up_below = ((VU)(mag > reach) & g.near) | ((VU)(mag != (VU){}) & (dir | (VU) - (VI)g.odd));
    if (STOCHASTIC && k.random) {
        const VI gap = d - splat_i<C>(g.rbits);
        const VU down = (VU)imax(-gap, (VI){}), up = (VU)imax(gap, (VI){});
        inc = (VU)(gap > (VI){}) ? R << up : R >> down;
        up_below = share_reaches<C>(sig, mb + (g.lowest - e), g.rbits, R);
    }
    VU r = (mag + inc) & ~mask;
    r = below ? up_below & smallest : r;
    V v = (V)(r | sign);
    v = select<C>((VI)(v > k.hi), k.over_pos, v);
    v = select<C>((VI)(v < k.lo), k.over_neg, v);
    v = select<C>((VI)(mag == splat_u<C>(C::EXP)), (V)(neg ? (VU)k.inf_neg : (VU)k.inf_pos), v);
    return select<C>((VI)(mag > splat_u<C>(C::EXP)), s, v);
}

// Corrects `v` where 2^emin is not in the format: `v` is `s` rounded as if it were. `first` is the format's smallest value; with 0,
// `v` stays.
template <class C> INL typename C::V mend_first(typename C::V s, typename C::V v, const Powers<C>& g, typename C::V first) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const VU u = (VU)s, sign = u & C::SIGN, mag = u ^ sign, neg = (VU)((VI)u >> (8 * sizeof(typename C::T) - 1));
    // This is exact: lanes_can() and grid_lanes_fit() (kernel_choice.h) ask for normal numbers.
    const V half = first * splat<C>((typename C::T)0.5);
    const VU dir = (neg & g.neg) | (~neg & g.pos);
    const VU near = ((VU)(mag > (VU)half) | ((VU)(mag == (VU)half) & (VU) - (VI)g.rna)) & g.near;
    const VU up = near | ((VU)(mag != (VU){}) & (dir | (VU) - (VI)g.odd));
    return select<C>((VI)(mag < (VU)first), (V)((up & (VU)first) | (sign & up)), v);
}

// Corrects `v`, which is `s` rounded, where that must not reach the next binade. It becomes at most the last value of p bits in the
// binade of `s`. Below zero it stays if the integers have one more value there. Below 2^emin nothing reaches the next binade.
template <class C> INL typename C::V stay_below(typename C::V s, typename C::V v, const Cast& c) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const VU u = (VU)s, sign = u & C::SIGN, mag = u ^ sign, got = (VU)v & ~splat_u<C>(C::SIGN);
    const VU last = (mag | splat_u<C>(C::FRAC)) & ~splat_u<C>(((typename C::U)1 << (C::MB + 1 - c.p)) - 1);
    VI over = (VI)(got > last) & (VI)(mag >= splat_u<C>((typename C::U)(c.emin + C::BIAS) << C::MB)) & (VI)(mag < splat_u<C>(C::EXP));
    if (c.lo < -c.hi) over &= (VI)(sign == (VU){});
    return select<C>(over, (V)(last | sign), v);
}

template <class C> static bool lanes_can(const Cast& c) {
    if (c.mode == SRB || c.mode == SRC || (c.flags & NO_ZERO)) return false;
    if (c.p < 2 && c.mode >= RNE && !(c.flags & SUPERNORMAL)) return false;  // ties by parity of codes, or no bits at all
    if (c.mode < RNE && (c.flags & (NO_CARRY | SUPERNORMAL | FIRST_IS_ZERO))) return false;
    if (c.mode == SR && ((c.flags & FIRST_IS_ZERO) || c.rbits > C::MB)) return false;
    return c.p <= C::MB + 1 && c.emin - c.p + 1 > 1 - C::BIAS && c.emax < C::EMAX;
}

// One cast, with its constants in vectors.
template <class C> struct GridRounder {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    Cast cast;
    Const<C> k;
    Powers<C> g;
    V first, nan;
    bool powers, mend, no_negatives, stays;

    INL GridRounder make(const Cast& c) {
        GridRounder r;
        r.cast = c;
        r.k = Const<C>::make(c);
        r.g = Powers<C>::make(c);
        r.first = splat<C>((typename C::T)scale2((double)((1ull << (c.p - 1)) + 1), c.emin - c.p + 1));
        r.nan = (V)splat_u<C>(C::NAN_BITS);
        r.powers = c.flags & SUPERNORMAL;
        r.mend = c.flags & FIRST_IS_ZERO;
        r.no_negatives = c.flags & NEGATIVE_NAN;
        r.stays = c.flags & NO_CARRY;
        return r;
    }

    template <bool STOCHASTIC> INL_MEMBER V round(V s, VU R) const {
        V v = powers ? round_powers<C, STOCHASTIC>(s, k, g, R) : round_general<C, STOCHASTIC>(s, k, R);
        if (stays) v = stay_below<C>(s, v, cast);
        if (mend) v = mend_first<C>(s, v, g, first);
        if (no_negatives) v = select<C>((VI)(s < (V){}), nan, v);
        return v;
    }
};

}  // namespace gemmsim::NS
