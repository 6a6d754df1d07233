// Checks of the carrier's nearest values while they are rounded to a format, for the speculative kernels (speculative.h).
// They detect whether any value is on a midpoint, below 2^emin or past the format's largest value. Below 2^emin the format's last place
// is another one.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/round_product.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// The constants of one cast, and its roundings of values for which the checks find nothing.
template <class C> struct CheckConstants {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VU up;      // the shift that moves the discarded bits to the top, where those of a midpoint are the sign bit alone
    VU normal;  // bits of 2^emin
    VI end;     // bits of the largest magnitude that both signs have
    V factor, minus, power;  // 2^k + 1, 1 - 2^k and 2^k, where k bits are discarded

    CheckConstants(const Const<C>& k, const gemmsim::Cast& cast)
        : up(in_register(splat_u<C>((typename C::U)(cast.p + 8 * sizeof(typename C::T) - C::MB - 1)))), normal(k.normal_from),
          end((VI)vmin(k.hi, -k.lo)), factor(k.factor), minus(splat<C>((typename C::T)2) - k.factor),
          power(k.factor - splat<C>((typename C::T)1)) {}

    // SHORT: for formats of p bits with k >= p + 2. These have at most 11 bits in floats and at most 25 in doubles.
    // Lemma: with t = RN(s * (1 - 2^k)), the fused sum r = t + s * 2^k is s rounded to nearest even.
    // Proof: t and s * 2^k are multiples of u, the last place of p bits. So r is one, and the fused addition is exact. t is next to its
    // exact value, so that r is next to s. On a midpoint t is even. There s * 2^k is u times the integer significand of s, which is even
    // because k >= 2. So r is even.
    // Where s exceeds a power of two by less than 2^-k of it, t lies a binade lower, on a grid of u / 2. The result is that power of two
    // all the same, because 2^-k of it is less than u / 4 for k >= p + 2.
    // SHORT takes two instructions instead of three, but both need the multipliers.
    template <bool SHORT = false> INL_MEMBER V round(V s) const { return near<SHORT>(s, far<SHORT>(s)); }
    template <bool SHORT> INL_MEMBER V far(V s) const { return s * (SHORT ? minus : factor); }
    template <bool SHORT> INL_MEMBER V near(V s, V far) const { return SHORT ? vfma(s, power, far) : far + (s - far); }
    // R(a * b) of any operands, where q is the carrier's nearest product: a fused operation rounds a * b - g once (round_product.h).
    INL_MEMBER V round_product(V a, V b, V q) const {
        const V g = q * factor;
        return g - vfnma(a, b, g);
    }
    INL_MEMBER VI on_midpoint(V s) const { return (VI)((VU)((VU)s << up) == splat_u<C>(C::SIGN)); }
    INL_MEMBER VI beyond(V s) const { return (VI)((VU)s & ~C::SIGN) > end; }
    INL_MEMBER VI below_normal(V s) const { return (VI)((VU)((VU)s & ~C::SIGN) < normal); }
};

// Seen: what the checked values were like. It has the least of their discarded bits, as signed numbers, and the least and largest
// magnitude. Values past the ends (LARGE) may be NaN, so that magnitudes are then compared as integers.
#if ISA_DIRECTED
INL C32::VI signed_min(C32::VI a, C32::VI b) { return (C32::VI)_mm512_min_epi32((__m512i)a, (__m512i)b); }
INL C64::VI signed_min(C64::VI a, C64::VI b) { return (C64::VI)_mm512_min_epi64((__m512i)a, (__m512i)b); }
// The minimum of discarded bits. In double lanes it compares the highest 32 bits alone, in which another value looks like a midpoint once
// in 2^32. That is one instruction, where the minimum of 64 bits takes Intel's processors two.
INL C32::VI least_bits(C32::VI a, C32::VI b) { return signed_min(a, b); }
INL C64::VI least_bits(C64::VI a, C64::VI b) { return (C64::VI)_mm512_min_epi32((__m512i)a, (__m512i)b); }
INL int any_lowest(C32::VI a) { return _mm512_cmpeq_epi32_mask((__m512i)a, _mm512_set1_epi32(INT32_MIN)); }
INL int any_lowest(C64::VI a) { return _mm512_mask_cmpeq_epi32_mask(0xAAAA, (__m512i)a, _mm512_set1_epi32(INT32_MIN)); }
INL int any_less(C32::VI a, C32::VI b) { return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b); }
INL int any_less(C64::VI a, C64::VI b) { return _mm512_cmplt_epi64_mask((__m512i)a, (__m512i)b); }

template <class C, bool MIDPOINTS, bool SMALL, bool LARGE> struct Seen {
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VI midpoints, least, most;
    INL_MEMBER void check(typename C::V s, const CheckConstants<C>& w, bool first) {
        const VI bits = (VI)(VU)((VU)s << w.up), magnitude = (VI)((VU)s & ~C::SIGN);
        if (MIDPOINTS) midpoints = first ? bits : least_bits(midpoints, bits);
        if (SMALL && LARGE) least = first ? magnitude : signed_min(least, magnitude);
        else if (SMALL) least = (VI)(first ? least_magnitude(s, s) : least_magnitude((typename C::V)least, s));
        if (LARGE) most = first ? magnitude : imax(most, magnitude);
    }
    INL_MEMBER bool found(const CheckConstants<C>& w) const {
        int any = 0;
        if (MIDPOINTS) any |= any_lowest(midpoints);
        if (SMALL) any |= any_less(least, (VI)w.normal);
        if (LARGE) any |= any_less(w.end, most);
        return any != 0;
    }
};
#else
#if ISA_NEON
INL C32::V least_number(C32::V a, C32::V b) { return (C32::V)vminq_f32((float32x4_t)a, (float32x4_t)b); }
template <class VI> INL bool any_lane(VI x) { return !none_set(x); }
#else
INL C32::V least_number(C32::V a, C32::V b) { return vmin(a, b); }
INL bool any_lane(C32::VI x) { return _mm256_movemask_ps((__m256)x) != 0; }
INL bool any_lane(C64::VI x) { return _mm256_movemask_pd((__m256d)x) != 0; }
#endif

template <class C, bool MIDPOINTS, bool SMALL, bool LARGE> struct Seen;
template <bool MIDPOINTS, bool SMALL, bool LARGE> struct Seen<C32, MIDPOINTS, SMALL, LARGE> {
    typedef C32::VI VI;
    VI midpoints, least, most;
    INL_MEMBER void check(C32::V s, const CheckConstants<C32>& w, bool first) {
        const VI bits = (VI)(C32::VU)((C32::VU)s << w.up), magnitude = (VI)((C32::VU)s & ~C32::SIGN);
        if (MIDPOINTS) midpoints = first ? bits : imin(midpoints, bits);
        if (SMALL && LARGE) least = first ? magnitude : imin(least, magnitude);
        else if (SMALL) least = first ? magnitude : (VI)least_number((C32::V)least, (C32::V)magnitude);
        if (LARGE) most = first ? magnitude : imax(most, magnitude);
    }
    INL_MEMBER bool found(const CheckConstants<C32>& w) const {
        VI any = {};
        if (MIDPOINTS) any |= (VI)((C32::VU)midpoints == splat_u<C32>(C32::SIGN));
        if (SMALL) any |= least < (VI)w.normal;
        if (LARGE) any |= most > w.end;
        return any_lane(any);
    }
};
template <bool MIDPOINTS, bool SMALL, bool LARGE> struct Seen<C64, MIDPOINTS, SMALL, LARGE> {
    typedef C64::VI VI;
    VI any;
    INL_MEMBER void check(C64::V s, const CheckConstants<C64>& w, bool first) {
        VI x = {};
        if (MIDPOINTS) x |= w.on_midpoint(s);
        if (SMALL) x |= (VI)((VI)((C64::VU)s & ~C64::SIGN) < (VI)w.normal);
        if (LARGE) x |= w.beyond(s);
        any = first ? x : any | x;
    }
    INL_MEMBER bool found(const CheckConstants<C64>&) const { return any_lane(any); }
};
#endif

#if ISA_AVX2
// Seen for rescaled values (rescaled_tile.h). The normal ones are those that have the exponent's highest bit, so that an AND of all tells.
template <class C, bool MIDPOINTS> struct SeenRescaled {
    typedef C32::VI VI;
    VI midpoints, normal;
    INL_MEMBER void check(C32::V s, const CheckConstants<C32>& w, bool first) {
        const VI bits = (VI)(C32::VU)((C32::VU)s << w.up);
        if (MIDPOINTS) midpoints = first ? bits : imin(midpoints, bits);
        normal = first ? (VI)s : normal & (VI)s;
    }
    INL_MEMBER bool found(const CheckConstants<C32>&) const {
        VI all = (VI)((C32::VU)normal + (C32::VU)normal);
        if (MIDPOINTS) all &= midpoints != (VI)splat_u<C32>(C32::SIGN);
        return _mm256_movemask_ps((__m256)all) != 0xFF;
    }
};
#endif

}  // namespace gemmsim::NS
#endif
