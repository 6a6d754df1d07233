// Nearest-even rounding of a carrier value by Veltkamp's splitting, for the kernels that rounders.h calls PLAIN and SUB.
//
// With k = bits - p >= 2 and g = RN(s * (2^k + 1)), g is a multiple of an even number of ulps of p bits whenever s is a
// tie, and s - g lies in the binade whose last place is that ulp: RN(s - g) + g is s rounded once, ties to even. Subnormal
// targets put a floor of 1.5 * 2^(emin + k) under |g|. Three instructions, five with the floor and the sign of zero.
#pragma once
#include "rounders.h"

namespace gemmsim { namespace NS {

#if ISA_AVX512
enum { SPLIT_FLOOR = 1 };  // the larger magnitude is one instruction
INL C32::V larger(C32::V a, C32::V b) { return (C32::V)_mm512_range_ps((__m512)a, (__m512)b, 3); }
INL C64::V larger(C64::V a, C64::V b) { return (C64::V)_mm512_range_pd((__m512d)a, (__m512d)b, 3); }
INL C32::V vfms(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c); }
INL C64::V vfms(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#else
enum { SPLIT_FLOOR = 0 };
template <class V> INL V larger(V a, V) { return a; }
template <class V> INL V vfms(V a, V b, V c) { return vfma(a, b, -c); }
#endif

template <class C> struct Split {
    typedef typename C::V V;
    V factor;              // 2^k + 1
    Const<C> k;

    INL Split make(const gemmsim::Cast& c) { return Split{splat<C>(Const<C>::power(C::MB + 1 - c.p) + 1), Const<C>::make(c)}; }
};

template <class C, int KIND> INL typename C::V far_from(typename C::V s, const Split<C>& f) {
    const typename C::V g = s * f.factor;
    return KIND == SUB ? larger(g, (typename C::V)f.k.magic_min) : g;
}

template <class C> INL typename C::V with_sign(typename C::V r, typename C::V s, const Split<C>& f) {
    return (typename C::V)((typename C::VU)r | ((typename C::VU)s & f.k.keep_sign));
}

// R(s), as round_to does it. PLAIN turns -0 into +0.
template <class C, int KIND> INL typename C::V round_split(typename C::V s, const Split<C>& f) {
    if (KIND == NONE) return s;
    if (KIND == SUB && !SPLIT_FLOOR) return round_magic<C, true>(s, f.k);
    const typename C::V g = far_from<C, KIND>(s, f), r = g + (s - g);
    return KIND == SUB ? with_sign(r, s, f) : r;
}

// R(+0 + a*b) for any a and b whose product does not overflow: a*b - g is rounded once, from the exact product.
template <class C, int KIND> INL typename C::V round_product(typename C::V a, typename C::V b, const Split<C>& f) {
    const typename C::V s = KIND == SUB ? vfma(a, b, (typename C::V){}) : a * b, g = far_from<C, KIND>(s, f);
    const typename C::V r = g + vfms(a, b, g);
    return KIND == SUB ? with_sign(r, s, f) : r;
}

}}  // namespace gemmsim::NS
