// A product rounded once to a run-time format, without rounding it to odd before.
#pragma once
#include "tiles/rounders.h"

namespace gemmsim::NS {

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
