// This file rounds elements to the value sets of gemmsim/grid.h in vectors. It is compiled once per ISA. Scalar code
// rounds what these lanes cannot.
#include "casts/elementwise.h"
#include "tiles/other/irregular_format.h"

namespace gemmsim::NS {

// Rounds to nearest, with ties toward one of the infinities: on one side of zero that is away from zero, on the other
// side toward zero.
template <class C> static void round_ties_loop(typename C::T* x, int64_t n, const Cast& c) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    Cast nearest = c;
    nearest.mode = RNA;
    const Const<C> away = Const<C>::make(nearest);
    Const<C> toward = away;
    toward.rna = VU{};
    const V nan = (V)splat_u<C>(C::NAN_BITS);
    const bool no_negatives = c.flags & NEGATIVE_NAN;
    for (int64_t i = 0; i < n; i += C::L) {
        const int64_t left = n - i < (int64_t)C::L ? n - i : (int64_t)C::L;
        V s = {};
        if (left == C::L) s = load<V>(x + i);
        else memcpy(&s, x + i, (size_t)left * sizeof(typename C::T));
        const V one = round_general<C, false>(s, c.mode == RNU ? away : toward, VU{});
        const V other = round_general<C, false>(s, c.mode == RNU ? toward : away, VU{});
        V v = select<C>((VI)(s < (V){}), other, one);
        if (no_negatives) v = select<C>((VI)(s < (V){}), nan, v);
        if (left == C::L) store(x + i, v);
        else memcpy(x + i, &v, (size_t)left * sizeof(typename C::T));
    }
}

template <class C, bool STOCHASTIC> static void round_grid_loop(typename C::T* x, int64_t n, const Cast& c, const typename C::U* draws) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    const GridRounder<C> rounder = GridRounder<C>::make(c);
    for (int64_t i = 0; i < n; i += C::L) {
        const int64_t left = n - i < (int64_t)C::L ? n - i : (int64_t)C::L;
        V s = {};
        if (left == C::L) s = load<V>(x + i);
        else memcpy(&s, x + i, (size_t)left * sizeof(typename C::T));
        VU R = {};
        if (STOCHASTIC) memcpy(&R, draws + i, (size_t)left * sizeof(typename C::T));
        const V v = rounder.template round<STOCHASTIC>(s, R);
        if (left == C::L) store(x + i, v);
        else memcpy(x + i, &v, (size_t)left * sizeof(typename C::T));
    }
}

template <class C> static bool round_lanes(typename C::T* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site) {
    if (!lanes_can<C>(c)) return false;
    if (c.mode < RNE) return round_ties_loop<C>(x, n, c), true;
    if (c.mode != SR) return round_grid_loop<C, false>(x, n, c, nullptr), true;
    constexpr int64_t CHUNK = 512;
    typename C::U draws[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        draws_for<C>(seed, index0 + i, m, site, c.rbits, draws);
        round_grid_loop<C, true>(x + i, m, c, draws);
    }
    return true;
}

// Rounds n elements in place. Returns false, and writes nothing, if these lanes cannot.
bool round_grids(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site) {
    if (carrier != 0) return round_lanes<C64>((double*)x, n, c, seed, index0, site);
    if (round_lanes<C32>((float*)x, n, c, seed, index0, site)) return true;
    if (!lanes_can<C64>(c)) return false;
    double wide[256];
    float* f = (float*)x;
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t m = n - i < 256 ? n - i : 256;
        for (int64_t j = 0; j < m; ++j) wide[j] = f[i + j];
        round_lanes<C64>(wide, m, c, seed, index0 + i, site);
        for (int64_t j = 0; j < m; ++j) f[i + j] = (float)wide[j];
    }
    return true;
}

}  // namespace gemmsim::NS
