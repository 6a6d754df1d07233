// A product rounded once to a run-time format, without rounding it to odd before.
#pragma once
#include "tiles/rounders.h"

namespace gemmsim::NS {

// c - a * b
#if ISA_AVX512
INL C32::V vfnma(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INL C64::V vfnma(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif ISA_NEON
INL C32::V vfnma(C32::V a, C32::V b, C32::V c) { return (C32::V)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INL C64::V vfnma(C64::V a, C64::V b, C64::V c) { return (C64::V)vfmsq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#elif ISA_AVX2
INL C32::V vfnma(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INL C64::V vfnma(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#endif

#if ISA_AVX512
INL C32::V vfms(C32::V a, C32::V b, C32::V c) { return (C32::V)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c); }
INL C64::V vfms(C64::V a, C64::V b, C64::V c) { return (C64::V)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#else
template <class V> INL V vfms(V a, V b, V c) { return vfma(a, b, -c); }
#endif

// R(+0 + a*b) of any a and b; but for clamps, of those whose product, times what round_to makes of it on the way, does not overflow.
// Without SIGNS, zeros are +0.
//
// Kinds PLAIN and SUB: a*b - g is rounded once, from the exact product. g as in round_split.
template <class C, int KIND, bool SIGNS = true> INL typename C::V product_split(typename C::V a, typename C::V b, const Const<C>& k) {
    constexpr bool SUBNORMALS = KIND == SUB;
    const typename C::V s = SUBNORMALS && SIGNS ? vfma(a, b, (typename C::V){}) : a * b, g = far_from<C, SUBNORMALS>(s, k);
    const typename C::V r = g + vfms(a, b, g);
    return SUBNORMALS && SIGNS ? with_sign(r, s, k) : r;
}
// Kinds PLAIN, SUB, FTZ and SPECIAL, which is FTZ with clamps: a*b + M is. M as in round_magic and round_flush, from the exponent of the
// nearest product; where that has reached the next binade, the power of two is what the exact one is rounded to on both grids.
// Not FROM_ZERO: R(a*b), whose zeros have the sign of a*b.
template <class C, int KIND, bool SIGNS, bool FROM_ZERO = true> INL typename C::V product_magic(typename C::V a, typename C::V b,
                                                                                                const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const V s = FROM_ZERO ? vfma(a, b, V{}) : a * b;
    const VI e = (VI)s & (typename C::I)C::EXP;
    VI m = (VI)((VU)e + (VU)k.magic_add);
    if (KIND == SPECIAL) {  // of any product
        const VI most = (VI)((VU)k.big_hi + (VU)k.magic_add);
        m = m < most ? m : most;
    }
    if (KIND == SUB) m = imax(m, k.magic_min);
    if (KIND == FTZ || KIND == SPECIAL) m = imax(m, (VI)(e < (VI)k.normal_from) & (VI)k.low_magic);  // which may be more than `most`
    V r = vfma(a, b, (V)m) - (V)m;
    if (SIGNS) r = with_sign(r, s, k);
    if (KIND != SPECIAL) return r;
    r = select<C>((VI)(r > k.hi), k.over_pos, r);
    return select<C>((VI)(r < k.lo), k.over_neg, r);
}
template <class C, int KIND, bool SIGNS> INL typename C::V round_product(typename C::V a, typename C::V b, const Const<C>& k) {
    if constexpr (KIND == PLAIN || (KIND == SUB && SPLIT_FLOOR)) return product_split<C, KIND, SIGNS>(a, b, k);
    else return product_magic<C, KIND, SIGNS>(a, b, k);
}

}  // namespace gemmsim::NS
