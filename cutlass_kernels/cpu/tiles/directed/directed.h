// Rounding in every mode but nearest even, by directed operations (kinds DIRECTED and DIRECTED_CLAMP). AVX-512 has instructions with an embedded
// direction, as CUDA has. Other processors use ordinary instructions under a rounding mode (ISA_MODES); the caller has set mode_of(MODE).
//
// Let P = 2^(max(e, emin) - p + 1 + MB) with the sign of s, where e is the exponent of s. Without subnormals P is 2^(emin + MB) below
// 2^emin. The sum s + P, rounded in one direction, lies on the grid of quantum P * 2^-MB. Two roundings in one direction are one rounding.
// So the modes are:
//   toward zero      rz(s + P) - P
//   up, down         the same with ru, rd
//   odd              the same with the odd one of both
//   nearest, away    half a quantum is added first, toward zero; then as toward zero
//   stochastic       R * 2^-r of a quantum is added first, toward zero; then as toward zero: floor(nu * 2^r) + R carries or not,
//                    where nu is the magnitude in quanta
// The stochastic mode is exact while p + r <= MB, because the carrier then has everything above 2^-r of a quantum.
#pragma once
#include "float_state.h"
#include "tiles/rounders.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

constexpr RoundingState::Direction mode_of(int mode) {
    return mode == RU ? RoundingState::UP : mode == RD || mode == RO ? RoundingState::DOWN : RoundingState::TO_ZERO;
}

// The bits u of a sum before their truncation up (RU) or down (RD). Where that direction is away from zero, it adds `goes`, the mask of all
// discarded bits.
template <class C, int MODE> INL typename C::VU before_truncation(typename C::VU u, typename C::VU goes) {
    typedef typename C::VI VI;
#if ISA_AVX512
    if constexpr (sizeof(typename C::T) == 4) {
        const __m512i x = (__m512i)u, zero = _mm512_setzero_si512();
        const __mmask16 away = MODE == RD ? _mm512_cmplt_epi32_mask(x, zero) : _mm512_cmpge_epi32_mask(x, zero);
        return (typename C::VU)_mm512_mask_add_epi32(x, away, x, (__m512i)goes);
    }
#endif
    const VI negative = (VI)u < (VI){};
    return u + (typename C::VU)(MODE == RD ? (VI)goes & negative : (VI)goes & ~negative);
}

#if ISA_DIRECTED
template <class C, int MODE> INL typename C::V fma_directed(typename C::V a, typename C::V b, typename C::V c) {
    if (MODE == RO) return fma_odd<C>(a, b, c);
    return MODE == RU ? fma_ru(a, b, c) : MODE == RD ? fma_rd(a, b, c) : fma_rz(a, b, c);
}
template <class C, int MODE> INL typename C::V mul_directed(typename C::V a, typename C::V b) {
    if (MODE == RO) return mul_odd<C>(a, b);
    return MODE == RU ? mul_ru(a, b) : MODE == RD ? mul_rd(a, b) : mul_rz(a, b);
}
template <class C, int MODE> INL typename C::V add_directed(typename C::V a, typename C::V b) {
    if (MODE == RO) return add_odd<C>(a, b);
    return MODE == RU ? add_ru(a, b) : MODE == RD ? add_rd(a, b) : add_rz(a, b);
}
INL C32::V least_magnitude(C32::V a, C32::V b) { return (C32::V)_mm512_range_ps((__m512)a, (__m512)b, 10); }
INL C64::V least_magnitude(C64::V a, C64::V b) { return (C64::V)_mm512_range_pd((__m512d)a, (__m512d)b, 10); }
#else
// The odd one of both directed results. The result up is given as its negative, which was rounded down.
template <class C> INL typename C::V odd_of(typename C::V down, typename C::V minus_up) {
    typedef typename C::VU VU;
    const VU up = (VU)minus_up ^ C::SIGN;
    return where_odd((typename C::V)up, down, (VU)down);
}
// -x. in_register keeps the compiler from replacing -(-a * b) by a * b.
template <class C> INL typename C::V negative(typename C::V x) { return in_register((typename C::V)((typename C::VU)x ^ C::SIGN)); }
template <class C, int MODE> INL typename C::V fma_directed(typename C::V a, typename C::V b, typename C::V c) {
    return MODE == RO ? odd_of<C>(vfma(a, b, c), vfnms(a, b, c)) : vfma(a, b, c);
}
template <class C, int MODE> INL typename C::V mul_directed(typename C::V a, typename C::V b) {
    return MODE == RO ? odd_of<C>(a * b, negative<C>(a) * b) : a * b;
}
template <class C, int MODE> INL typename C::V add_directed(typename C::V a, typename C::V b) {
    return MODE == RO ? odd_of<C>(a + b, negative<C>(b) - a) : a + b;
}
INL C32::V to_float(C32::VU x) { return __builtin_convertvector((C32::VI)x, C32::V); }
// Converts whole numbers below 2^52.
INL C64::V to_float(C64::VU x) {
    const C64::V power = splat<C64>(0x1p52);
    return (C64::V)(x | (C64::VU)power) - power;
}
#endif

template <class C> INL typename C::V without_minus_zero(typename C::V s) {
    typedef typename C::VU VU;
    return (typename C::V)((VU)s == splat_u<C>(C::SIGN) ? (VU){} : (VU)s);
}
// Makes -0 a +0 where rounding down gave -0. An exact zero sum of unlike signs is +0 in every mode of a spec, but -0 in the hardware's mode
// down.
// The register itself is never -0 in mode RD or RO: it starts at +0, and negative values do not round up to zero.
template <class C, int MODE> INL typename C::V plus_zero(typename C::V s) {
    if (MODE != RD && !(ISA_MODES && MODE == RO)) return s;
    if (ISA_DIRECTED) return s + (typename C::V){};
    return without_minus_zero<C>(s);  // adding +0 does not help where additions round down
}

template <class C, int MODE, bool CLAMP> INL typename C::V round_directed(typename C::V s, const Const<C>& k, typename C::VU R) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    if (CLAMP) s = clamped(k.big_lo, k.big_hi, s);
    const VU sign = (VU)s & C::SIGN, e = (VU)s & C::EXP;
    const VU bias = (VU)k.base << C::MB;  // for NaN the sum e + bias may wrap
    const VI low = (VI)(VU)(e < k.normal_from);
    const V P = (V)((low ? (VU)k.power_min : e + bias) | sign);
    V x = s;
    if (MODE == SR) x = fma_directed<C, MODE>(P, to_float(R) * k.random_scale, s);
    if (MODE == RNA) x = fma_directed<C, MODE>(P, splat<C>(Const<C>::power(-C::MB - 1)), s);
    V r = add_directed<C, MODE>(x, P) - P;
    if (ISA_MODES) r = plus_zero<C, MODE>(r);
    r = (V)((VU)r | (sign & k.keep_sign));
    if (!CLAMP) return r;
    r = select<C>((VI)(r > k.hi), k.over_pos, r);
    return select<C>((VI)(r < k.lo), k.over_neg, r);
}

}  // namespace gemmsim::NS
#endif
