// This file combines partial sums: s = R(s + t), element by element, on tiles that lie in the first-level cache.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/random_bits.h"
#include "tiles/rounders.h"

namespace gemmsim::NS {

// A partial sum may be infinite where a segment overflowed. Adding the magic number leaves infinity as it is; splitting
// would make it NaN.
template <class C, Rounding KIND> INL typename C::V round_total(typename C::V s, const Const<C>& k) {
    if constexpr (KIND == Rounding::SUBNORMALS) return round_magic<C, true>(s, k);
    else return round_to<C, KIND>(s, k, (typename C::VU){});
}

template <class C, Rounding KIND, bool ODD> static void combine_loop(typename C::T* s, const typename C::T* t, int64_t n,
                                                                     const Cast& cast) {
    typedef typename C::V V;
    const Const<C> k = Const<C>::make(cast);
    for (int64_t i = 0; i < n; i += C::L) {
        const V x = load<V>(s + i), y = load<V>(t + i);
        store(s + i, round_total<C, KIND>(ODD ? add_odd<C>(x, y) : x + y, k));
    }
}

#if ISA_DIRECTED || ISA_MODES
template <class C, int MODE> static void combine_in_mode(typename C::T* s, const typename C::T* t, int64_t n, const Cast& cast) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const Const<C> k = Const<C>::make(cast);
#if ISA_MODES
    const RoundingState state(mode_of(MODE));
#endif
    for (int64_t i = 0; i < n; i += C::L) {
        const V x = load<V>(s + i), y = load<V>(t + i);
        V sum = add_directed<C, MODE>(x, y);
        if (MODE == RD) sum = select<C>((VI)(sum == V{}), (V)((VU)x & (VU)y & C::SIGN), sum);  // only the sum of two -0 is -0
        store(s + i, round_directed<C, MODE, false>(sum, k, VU{}));
    }
}

template <class C> static void combine_directed(void* s, const void* t, int64_t n, const Cast& cast) {
    typedef typename C::T T;
    switch (cast.mode) {
        case RNA: return combine_in_mode<C, RNA>((T*)s, (const T*)t, n, cast);
        case RTZ: return combine_in_mode<C, RTZ>((T*)s, (const T*)t, n, cast);
        case RU: return combine_in_mode<C, RU>((T*)s, (const T*)t, n, cast);
        case RD: return combine_in_mode<C, RD>((T*)s, (const T*)t, n, cast);
        default: return combine_in_mode<C, RO>((T*)s, (const T*)t, n, cast);
    }
}
#endif

// n is a multiple of the vector's lanes. `how` is NATIVE, NEAREST, DIRECTED or ANY_MODE.
template <class C> static void combine_kind(void* s, const void* t, int64_t n, const Cast& cast, Combine how, bool odd) {
    typedef typename C::T T;
    if (how == Combine::NATIVE) return combine_loop<C, Rounding::NATIVE, false>((T*)s, (const T*)t, n, cast);
#if ISA_DIRECTED || ISA_MODES
    if (how == Combine::DIRECTED) return combine_directed<C>(s, t, n, cast);
#endif
    if (how == Combine::NEAREST)
        return odd ? combine_loop<C, Rounding::SUBNORMALS, true>((T*)s, (const T*)t, n, cast)
                   : combine_loop<C, Rounding::SUBNORMALS, false>((T*)s, (const T*)t, n, cast);
    return odd ? combine_loop<C, Rounding::ANY_MODE, true>((T*)s, (const T*)t, n, cast)
               : combine_loop<C, Rounding::ANY_MODE, false>((T*)s, (const T*)t, n, cast);
}

// Combines a tile with stochastic rounding. Its draws are those of stream `site` at step `index`.
template <class C, bool ODD> static void combine_draws(typename C::T* s, const typename C::T* x, const Tile& t, const Cast& cast,
                                                       uint64_t index, int site) {
    typedef typename C::V V;
    const Const<C> k = Const<C>::make(cast);
    const uint64_t per = cast.rbits > 16 ? 4 : 8;
    Draws<C, MR> draws;
    draws.make(t, 0, (uint32_t)(index / per), site, t.rows);
    for (int row = 0; row < t.rows; ++row) {
        for (int j = 0; j < NV; ++j) {
            const int at = (row * NV + j) * C::L;
            const V u = load<V>(s + at), v = load<V>(x + at);
            store(s + at,
                  round_to<C, Rounding::STOCHASTIC>(ODD ? add_odd<C>(u, v) : u + v, k, draws.get(row, j, (int)(index % per), cast.rbits)));
        }
    }
}

}  // namespace gemmsim::NS
