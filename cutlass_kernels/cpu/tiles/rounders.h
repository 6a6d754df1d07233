// Rounds one vector of carrier values to a run-time format. Every parameter of the format is a vector of constants, so that one
// binary serves all formats. Template parameters select structure only. docs/design/cpu.md has the derivations.
//
// The inputs are exact values rounded to odd, or values proved exact. Rounding them gives what one rounding of the exact values gives.
#pragma once
#include "vec.h"
#include "isa_table.h"

namespace gemmsim::NS {

// Kinds of rounding (enum Rounding in isa_table.h). The planner (product/kernel_choice.h) proves which cheaper kinds suffice and chooses
// one:
//   NATIVE      nothing is rounded: the carrier is the format
//   NORMAL      nearest even; neither overflow nor underflow below the smallest quantum can happen
//   SUBNORMALS  NORMAL with the format's subnormals and the sign of zero
//   SATURATE    SUBNORMALS with a clamp to [lo, hi]
//   OVERFLOWS   SUBNORMALS with overflow to a special value (infinity or NaN)
//   FLUSH       nearest even of finite data, with or without subnormals, with any overflow policy
//   ANY_MODE    any deterministic mode, any overflow policy, NaN and infinity in the data
//   STOCHASTIC  ANY_MODE, and stochastic rounding
//   DIRECTED, DIRECTED_CLAMP  one mode other than nearest even (tiles/directed/directed.h)

template <class C> struct Const {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    // magic_add, added to the bits of 2^e, gives the bits of 1.5 * 2^(e - p + 1 + MB). magic_min is the bits of that number for e = emin.
    VI magic_add, magic_min;
    V lo, hi, big_lo, big_hi;  // the finite range, and the powers of two just past it
    V over_pos, over_neg, inf_pos, inf_neg;
    VI base, emin_b, ftz_extra, flush;
    VU half_quantum, quantum;  // bit patterns of half the smallest quantum and of that quantum, which is 2^emin without subnormals
    VU near, rna, rne, pos, neg, odd;  // masks of the modes
    VU keep_sign;  // the sign bit if the format has a negative zero, else 0
    V random_scale;  // 2^-(MB + r): random bits times this times P (directed.h) are their share of a quantum
    VI power_min;    // bits of P (directed.h) below 2^emin: 2^MB times the quantum there
    VU normal_from;  // bit pattern of 2^emin
    V low_magic;     // 1.5 * 2^MB times the quantum below 2^emin, which is 2^emin itself without subnormals
    V factor;        // 2^k + 1, where k bits are discarded (round_split)
    int rbits, random, neg_zero, mode;

    INL Const make(const gemmsim::Cast& c) {
        typedef typename C::I I;
        typedef typename C::U U;
        typedef typename C::T T;
        Const k;
        const int mb = C::MB, bias = C::BIAS;
        // The bits of exponent field e, which may be negative, plus `half` times the highest bit of the fraction. The sum is unsigned,
        // because overflow wraps there.
        const auto field = [](int e, U half) { return (typename C::VI)splat_u<C>(((U)(I)e << C::MB) + (half << (C::MB - 1))); };
        k.magic_add = field(mb + 1 - c.p, 1);
        k.magic_min = field(c.emin + bias + mb + 1 - c.p, 1);
        k.lo = splat<C>((T)c.lo);
        k.hi = splat<C>((T)c.hi);
        const int top = c.emax + 1 > C::EMAX ? C::EMAX : c.emax + 1;
        const T big = power(top);
        k.big_hi = splat<C>(big);
        k.big_lo = splat<C>(-big);
        k.over_pos = splat<C>((T)c.over_pos);
        k.over_neg = splat<C>((T)c.over_neg);
        k.inf_pos = splat<C>((T)c.inf_pos);
        k.inf_neg = splat<C>((T)c.inf_neg);
        k.base = splat_i<C>(mb + 1 - c.p);
        k.emin_b = splat_i<C>(c.emin + bias);
        const bool ftz = (c.flags & NO_SUBNORMALS) != 0;
        k.ftz_extra = splat_i<C>(ftz ? c.p - 1 : 0);
        k.flush = splat_i<C>(ftz ? -1 : 0);
        const int q = ftz ? c.emin : c.emin - c.p + 1;
        k.quantum = splat_u<C>(pattern(q));
        k.half_quantum = splat_u<C>(pattern(q - 1));
        const bool rne = c.mode == RNE, rna = c.mode == RNA;
        k.near = splat_u<C>(rne || rna ? ~(typename C::U)0 : 0);
        k.rna = splat_u<C>(rna ? 1 : 0);
        k.rne = splat_u<C>(rne ? 1 : 0);
        k.pos = splat_u<C>(c.mode == RU ? ~(typename C::U)0 : 0);
        k.neg = splat_u<C>(c.mode == RD ? ~(typename C::U)0 : 0);
        k.odd = splat_u<C>(c.mode == RO ? 1 : 0);
        k.rbits = c.rbits;
        k.mode = c.mode;
        const int low = ftz ? c.emin : c.emin - c.p + 1;
        k.power_min = field(low + bias + mb, 0);
        k.normal_from = splat_u<C>(pattern(c.emin));
        k.low_magic = (V)field(low + bias + mb, 1);
        k.random_scale = splat<C>(power(-mb - c.rbits));
        k.factor = splat<C>(power(mb + 1 - c.p) + 1);
        k.random = c.mode == SR;
        k.neg_zero = (c.flags & NEG_ZERO) != 0;
        k.keep_sign = splat_u<C>(k.neg_zero ? C::SIGN : 0);
        return k;
    }
    // The bit pattern of 2^e in the carrier, subnormals included; 0 where the carrier has no such number.
    INL typename C::U pattern(int e) {
        const int b = e + C::BIAS;
        if (b >= 1) return (typename C::U)b << C::MB;
        return b + C::MB - 1 >= 0 ? (typename C::U)1 << (b + C::MB - 1) : 0;
    }
    INL typename C::T power(int e) {
        const typename C::U u = pattern(e);
        typename C::T x;
        memcpy(&x, &u, sizeof x);
        return x;
    }
};

// r with the sign of s if the format has a negative zero. Premise: r is +0 or has the sign of s already.
template <class C> INL typename C::V with_sign(typename C::V r, typename C::V s, const Const<C>& k) {
#if ISA_NEON
    return (typename C::V)vbslq_u8((uint8x16_t)k.keep_sign, (uint8x16_t)s, (uint8x16_t)r);
#endif
    return (typename C::V)((typename C::VU)r | ((typename C::VU)s & k.keep_sign));  // a negative value that underflows is -0
}

// r = (s + M) - M with M = 1.5 * 2^(e - p + 1 + MB), where e is the exponent of s. The hardware's nearest-even addition does the rounding.
// It needs p <= MB - 1 and a finite M. An integer addition builds M, so that s = 0 never makes a subnormal number.
// Without SIGNS the sign of a zero is not defined.
template <class C, bool SUBNORMALS, bool SIGNS = SUBNORMALS> INL typename C::V round_magic(typename C::V s, const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typename C::VI m = (typename C::VI)(((VU)s & C::EXP) + (VU)k.magic_add);  // for NaN the sum may wrap
    if (SUBNORMALS) m = imax(m, k.magic_min);
    const V r = (s + (V)m) - (V)m;
    return SIGNS ? with_sign(r, s, k) : r;
}

#if ISA_AVX512
enum { SPLIT_FLOOR = 1 };  // round_split serves subnormals too: the larger magnitude is one instruction
INL C32::V larger(C32::V a, C32::V b) { return (C32::V)_mm512_range_ps((__m512)a, (__m512)b, 3); }
INL C64::V larger(C64::V a, C64::V b) { return (C64::V)_mm512_range_pd((__m512d)a, (__m512d)b, 3); }
#else
enum { SPLIT_FLOOR = 0 };
template <class V> INL V larger(V a, V) { return a; }
#endif

// The number that round_split splits s with: g = RN(s * (2^k + 1)). With subnormals |g| is at least the number whose bits are magic_min.
template <class C, bool SUBNORMALS> INL typename C::V far_from(typename C::V s, const Const<C>& k) {
    const typename C::V g = s * k.factor;
    return SUBNORMALS ? larger(g, (typename C::V)k.magic_min) : g;
}

// r = g + (s - g), Veltkamp's splitting, rounds to nearest even. Premises: k = bits - p >= 2, and the range conditions of round_magic for
// g.
// Why ties go to even: let s be a tie and u the ulp of p bits there. g is then an even multiple of u. s - g lies in the binade whose last
// place is u, and is rounded to an even multiple of u as well. So r is one.
template <class C, bool SUBNORMALS, bool SIGNS = SUBNORMALS> INL typename C::V round_split(typename C::V s, const Const<C>& k) {
    if constexpr (SUBNORMALS && !SPLIT_FLOOR) return round_magic<C, true, SIGNS>(s, k);
    const typename C::V g = far_from<C, SUBNORMALS>(s, k), r = g + (s - g);
    return SIGNS ? with_sign(r, s, k) : r;
}

// The same, but below 2^emin with the quantum that belongs to Const::low_magic. A tie between zero and 2^emin goes to zero.
template <class C> INL typename C::V round_flush(typename C::V s, const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    // Of the two bit patterns the larger one is right. A maximum is one instruction; a selection takes more.
    if constexpr (!SPLIT_FLOOR && sizeof(typename C::T) == 4) {
        const VI e = (VI)s & (typename C::I)C::EXP, low = (VI)(e < (VI)k.normal_from) & (VI)k.low_magic;
        const VI m = imax((VI)((VU)e + (VU)k.magic_add), low);
        return with_sign((s + (V)m) - (V)m, s, k);
    }
    const V far = s * k.factor, g = (VI)(VU)(((VU)s & ~C::SIGN) < k.normal_from) ? k.low_magic : far;
    return with_sign(g + (s - g), s, k);
}

template <class C> INL typename C::V select(typename C::VI m, typename C::V a, typename C::V b) { return m ? a : b; }

// Rounds the magnitude's bit pattern in integers: any mode, subnormals or none, any overflow policy, NaN and infinities.
// The sum `mag + inc` carries into the exponent exactly when the significand overflows.
template <class C, bool STOCHASTIC> INL_LONG typename C::V round_general(typename C::V s, const Const<C>& k, typename C::VU R) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const VU one = splat_u<C>(1), u = (VU)s, sign = u & C::SIGN, mag = u ^ sign;
    const VI e = imax((VI)(mag >> C::MB), splat_i<C>(1));
    const VI below = k.emin_b - e;
    VI d = k.base + imax(below, (VI){});
    const VI flushed = (VI)(mag < k.quantum) & k.flush;  // a format without subnormals, below 2^emin: the quantum is 2^emin
    d += flushed & k.ftz_extra;
    const VU sig = (mag & C::FRAC) | ((VU)((VU)(mag >> C::MB) != (VU){}) & C::ONE);
    const VI small = (VI)(d > splat_i<C>(C::MB)) | flushed;  // the magnitude is below one quantum
    const VU ds = (VU)(small ? splat_i<C>(C::MB) : d);
    const VU mask = (one << ds) - 1, lsb = (sig >> ds) & one, neg = (VU)((VI)u >> (8 * sizeof(typename C::T) - 1));
    const VU dir = (neg & k.neg) | (~neg & k.pos);
    VU inc = (((mask + k.rna) >> 1) & k.near) + (lsb & k.rne & mask) + (mask & dir);
    const VU inexact = (VU)((VU)(mag & mask) != (VU){});
    inc += inexact & (mask + 1) & (VU) - (VI)(k.odd & ~lsb);
    VU up_small = ((VU)(mag > k.half_quantum - k.rna) & k.near) | ((VU)(mag != (VU){}) & (dir | (VU) - (VI)k.odd));
    if (STOCHASTIC && k.random) {
        const VI rb = splat_i<C>(k.rbits), gap = d - rb;
        const VU down = (VU)imax(-gap, (VI){}), up = (VU)imax(gap, (VI){});
        const VU big = splat_u<C>(8 * sizeof(typename C::T) - 1);
        inc = (VU)(gap > (VI){}) ? R << (up > big ? big : up) : R >> (down > big ? big : down);
        // floor(nu * 2^r), where nu is the magnitude in quanta. Below one quantum, d > MB >= r.
        const VU kept = sig >> (up > big ? big : up);
        up_small = (VU)(kept + R >= (one << (VU)rb));
    }
    VU r = (mag + inc) & ~mask;
    r = small ? up_small & k.quantum : r;
    V v = (V)(r | sign);
    v = select<C>((VI)(v > k.hi), k.over_pos, v);
    v = select<C>((VI)(v < k.lo), k.over_neg, v);
    v = select<C>((VI)(mag == splat_u<C>(C::EXP)), (V)(neg ? (VU)k.inf_neg : (VU)k.inf_pos), v);
    if (!k.neg_zero) v = (V)((VU)v == splat_u<C>(C::SIGN) ? (VU){} : (VU)v);  // such a format has no -0 in any mode
    return select<C>((VI)(mag > splat_u<C>(C::EXP)), s, v);
}

template <class C, Rounding KIND> INL typename C::V round_to(typename C::V s, const Const<C>& k, typename C::VU R) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    if constexpr (KIND == Rounding::NATIVE) return s;
    if constexpr (KIND == Rounding::NORMAL) return round_split<C, false>(s, k);
    if constexpr (KIND == Rounding::SUBNORMALS) return round_split<C, true>(s, k);
    if constexpr (KIND == Rounding::SATURATE) return round_split<C, true>(clamped(k.lo, k.hi, s), k);
    if constexpr (KIND == Rounding::OVERFLOWS) {
        const V r = round_split<C, true>(clamped(k.big_lo, k.big_hi, s), k);
        const V p = select<C>((VI)(r > k.hi), k.over_pos, r);
        return select<C>((VI)(p < k.lo), k.over_neg, p);
    }
    if constexpr (KIND == Rounding::FLUSH) {
        const V r = round_flush<C>(clamped(k.big_lo, k.big_hi, s), k);
        const V p = select<C>((VI)(r > k.hi), k.over_pos, r);
        return select<C>((VI)(p < k.lo), k.over_neg, p);
    }
    if constexpr (KIND == Rounding::ANY_MODE || KIND == Rounding::STOCHASTIC)
        return round_general<C, KIND == Rounding::STOCHASTIC>(s, k, R);
}

}  // namespace gemmsim::NS
