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

// R(+0 + a*b) for any a and b whose product does not overflow: a*b - g is rounded once, from the exact product. g as in
// round_split. `KIND`: PLAIN or SUB. Without SIGNS, zeros are +0.
template <class C, int KIND, bool SIGNS = true> INL typename C::V round_product(typename C::V a, typename C::V b, const Const<C>& k) {
    constexpr bool SUBNORMALS = KIND == SUB;
    const typename C::V s = SUBNORMALS && SIGNS ? vfma(a, b, (typename C::V){}) : a * b, g = far_from<C, SUBNORMALS>(s, k);
    const typename C::V r = g + vfms(a, b, g);
    return SUBNORMALS && SIGNS ? with_sign(r, s, k) : r;
}

}  // namespace gemmsim::NS
