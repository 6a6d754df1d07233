// Rounds a product once to a run-time format, to nearest even, without rounding it to odd first. Compensated sums and short runs use it.
#pragma once
#include "tiles/rounders.h"

namespace gemmsim::NS {

// vfnma is c - a * b and vfms is a * b - c, each rounded once.
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

// The functions below compute R(+0 + a*b). With clamps a and b may be any numbers. Without, neither the product nor what rounding scales
// it to (g or M) may overflow. Without SIGNS, zeros are +0.
//
// Kinds NORMAL and SUBNORMALS: a fused operation rounds a*b - g once, from the exact product. g is that of round_split.
template <class C, RunsRounding KIND, bool SIGNS = true> INL typename C::V product_split(typename C::V a, typename C::V b,
                                                                                         const Const<C>& k) {
    constexpr bool SUBNORMALS = KIND == RunsRounding::SUBNORMALS;
    const typename C::V s = SUBNORMALS && SIGNS ? vfma(a, b, (typename C::V){}) : a * b, g = far_from<C, SUBNORMALS>(s, k);
    const typename C::V r = g + vfms(a, b, g);
    return SUBNORMALS && SIGNS ? with_sign(r, s, k) : r;
}
// Kinds NORMAL, SUBNORMALS, FLUSH and CLAMPED, which is FLUSH with clamps here: a fused operation rounds a*b + M once, from the exact product.
// M is that of round_magic and round_flush, from the exponent of the nearest product. This product may have been rounded up to the next
// binade. It is then a power of two, and the exact product rounds to that power of two on the grids of both binades.
// Without FROM_ZERO the result is R(a*b), whose zeros have the sign of a*b.
template <class C, RunsRounding KIND, bool SIGNS, bool FROM_ZERO = true> INL typename C::V product_magic(typename C::V a, typename C::V b,
                                                                                                         const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const V s = FROM_ZERO ? vfma(a, b, V{}) : a * b;
    const VI e = (VI)s & (typename C::I)C::EXP;
    VI m = (VI)((VU)e + (VU)k.magic_add);
    if (KIND == RunsRounding::CLAMPED) {  // keeps M finite for any product
        const VI most = (VI)((VU)k.big_hi + (VU)k.magic_add);
        m = m < most ? m : most;
    }
    if (KIND == RunsRounding::SUBNORMALS) m = imax(m, k.magic_min);
    // low_magic may be larger than `most`.
    if (KIND == RunsRounding::FLUSH || KIND == RunsRounding::CLAMPED) m = imax(m, (VI)(e < (VI)k.normal_from) & (VI)k.low_magic);
    V r = vfma(a, b, (V)m) - (V)m;
    if (SIGNS) r = with_sign(r, s, k);
    if (KIND != RunsRounding::CLAMPED) return r;
    r = select<C>((VI)(r > k.hi), k.over_pos, r);
    return select<C>((VI)(r < k.lo), k.over_neg, r);
}
template <class C, RunsRounding KIND, bool SIGNS> INL typename C::V round_product(typename C::V a, typename C::V b, const Const<C>& k) {
    if constexpr (KIND == RunsRounding::NORMAL || (KIND == RunsRounding::SUBNORMALS && SPLIT_FLOOR))
        return product_split<C, KIND, SIGNS>(a, b, k);
    else return product_magic<C, KIND, SIGNS>(a, b, k);
}

}  // namespace gemmsim::NS
