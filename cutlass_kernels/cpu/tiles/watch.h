// What the carrier's nearest values are looked at for, as they are rounded to a format: whether any is on a midpoint, or below
// 2^emin, where the format's last place is another one (watched.h).
#pragma once
#include "tiles/directed.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// Values of one cast: how they are rounded where nothing is found.
template <class C> struct Watch {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VU up;      // by which the bits that go are moved to the top: those of a midpoint are the sign bit alone
    VU normal;  // bits of 2^emin
    V factor;

    Watch(const Const<C>& k, const gemmsim::Cast& cast)
        : up(in_register(splat_u<C>((typename C::U)(cast.p + 8 * sizeof(typename C::T) - C::MB - 1)))), normal(k.normal_from),
          factor(k.factor) {}

    INL_MEMBER V round(V s) const {
        const V g = s * factor;
        return g + (s - g);
    }
    INL_MEMBER VI on_midpoint(V s) const { return (VI)((VU)((VU)s << up) == splat_u<C>(C::SIGN)); }
    INL_MEMBER VI below_normal(V s) const { return (VI)((VU)((VU)s & ~C::SIGN) < normal); }
};

// What values have been like.
#if ISA_DIRECTED
INL C32::VI signed_min(C32::VI a, C32::VI b) { return (C32::VI)_mm512_min_epi32((__m512i)a, (__m512i)b); }
INL C64::VI signed_min(C64::VI a, C64::VI b) { return (C64::VI)_mm512_min_epi64((__m512i)a, (__m512i)b); }
INL bool any_equal(C32::VI a, C32::VI b) { return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b) != 0; }
INL bool any_equal(C64::VI a, C64::VI b) { return _mm512_cmpeq_epi64_mask((__m512i)a, (__m512i)b) != 0; }
INL bool any_less(C32::V a, C32::V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ) != 0; }
INL bool any_less(C64::V a, C64::V b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ) != 0; }

template <class C, bool MIDPOINTS, bool SMALL> struct Seen {
    typename C::VI midpoints;
    typename C::V least;
    INL_MEMBER void look(typename C::V s, const Watch<C>& w, bool first) {
        const typename C::VI bits = (typename C::VI)(typename C::VU)((typename C::VU)s << w.up);
        if (MIDPOINTS) midpoints = first ? bits : signed_min(midpoints, bits);
        if (SMALL) least = first ? least_magnitude(s, s) : least_magnitude(least, s);
    }
    INL_MEMBER bool found(const Watch<C>& w) const {
        int any = 0;
        if (MIDPOINTS) any |= (int)any_equal(midpoints, (typename C::VI)splat_u<C>(C::SIGN));
        if (SMALL) any |= (int)any_less(least, (typename C::V)w.normal);
        return any;
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

template <class C, bool MIDPOINTS, bool SMALL> struct Seen;
template <bool MIDPOINTS, bool SMALL> struct Seen<C32, MIDPOINTS, SMALL> {  // least values: signed, and magnitudes
    C32::VI midpoints;
    C32::V least;
    INL_MEMBER void look(C32::V s, const Watch<C32>& w, bool first) {
        const C32::VI bits = (C32::VI)(C32::VU)((C32::VU)s << w.up);
        const C32::V magnitude = (C32::V)((C32::VU)s & ~C32::SIGN);
        if (MIDPOINTS) midpoints = first ? bits : imin(midpoints, bits);
        if (SMALL) least = first ? magnitude : least_number(least, magnitude);
    }
    INL_MEMBER bool found(const Watch<C32>& w) const {
        C32::VI any = {};
        if (MIDPOINTS) any |= (C32::VI)((C32::VU)midpoints == splat_u<C32>(C32::SIGN));
        if (SMALL) any |= (C32::VI)(least < (C32::V)w.normal);
        return any_lane(any);
    }
};
template <bool MIDPOINTS, bool SMALL> struct Seen<C64, MIDPOINTS, SMALL> {
    typedef C64::VI VI;
    VI any;
    INL_MEMBER void look(C64::V s, const Watch<C64>& w, bool first) {
        VI x = {};
        if (MIDPOINTS) x |= w.on_midpoint(s);
        if (SMALL) x |= (VI)((VI)((C64::VU)s & ~C64::SIGN) < (VI)w.normal);
        any = first ? x : any | x;
    }
    INL_MEMBER bool found(const Watch<C64>&) const { return any_lane(any); }
};
#endif

}  // namespace gemmsim::NS
#endif
