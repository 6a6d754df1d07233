// Kahan's sums to nearest even of any operands, on processors that round in one direction by a mode (ISA_MODES). For each term,
// q - C is computed to odd under rounding down, for all rows of a tile. Then it and the rest of the step are rounded under rounding
// to nearest (mode_switch.h). Kinds: FTZ, for finite data, and SUB, which is speculative (compensated.h). The other methods round
// products alone, once, and need no other mode (round_product.h).
#pragma once
#include "tiles/compensated/compensated_step.h"
#include "tiles/directed/directed.h"
#include "tiles/stochastic/float64_lanes.h"

#if ISA_MODES
namespace gemmsim::NS {

// PANEL: the element type of the panels and of the tile's c. It is C's own type, or float for double lanes.
template <class C, int KIND, class PANEL> struct KahanInTwoModes {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef CompensatedStep<C, KAHAN> Step;
    static constexpr int VECTORS = NV * (int)(sizeof(T) / sizeof(PANEL)), ROW = VECTORS * C::L;

    const Tile& t;
    const Speculation& speculation;
    const int size;
    const Const<C> ka;
    alignas(64) T s[(int)MR * ROW], c[(int)MR * ROW], x[(int)MR * ROW];

    KahanInTwoModes(const Tile& tile, const Speculation& w)
        : t(tile), speculation(w), size(tile.rows * ROW), ka(Const<C>::make(*tile.add)), s{}, c{} {}

    static INL_MEMBER V from_panel(const PANEL* p) {
        if constexpr (sizeof(PANEL) == sizeof(T)) return load<V>(p);
        else return widened(load<HalfFloats>(p));
    }
    static INL_MEMBER void to_panel(PANEL* p, V v) {
        if constexpr (sizeof(PANEL) == sizeof(T)) store(p, v);
        else store(p, __builtin_convertvector(v, HalfFloats));
    }

    // Computes q - C to odd, under rounding down.
    __attribute__((noinline)) void make_odd(const PANEL* a, const PANEL* b) {
        for (int i = 0; i < t.rows; ++i) {
            const V left = splat<C>((T)a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) {
                const int at = i * ROW + j * C::L;
                store(x + at, fma_directed<C, RO>(left, from_panel(b + j * C::L), -load<V>(c + at)));
            }
        }
    }
    // Rounds q - C and completes the step, under rounding to nearest.
    __attribute__((noinline)) void finish() {
        const Rounded<C, KIND, true> add = {ka};
#pragma GCC unroll 2
        for (int at = 0; at < size; at += C::L) {
            V sum = load<V>(s + at), lost = load<V>(c + at);
            Step::finish(add.template round<0>(load<V>(x + at)), sum, lost, add);
            store(s + at, sum);
            store(c + at, lost);
        }
    }
    bool inside() const {
        const V most = splat<C>((T)speculation.most);
        VI lost = {};
        for (int at = 0; at < size; at += C::L) lost |= ~(VI)((V)((VU)load<V>(s + at) & ~C::SIGN) < most);  // a NaN is lost, too
        return none_set(lost);
    }
    bool run() {
        const PANEL *a = (const PANEL*)t.a, *b = (const PANEL*)t.b;
        for (int at = 0; !t.begins && at < size; at += C::L) {
            store(s + at, from_panel((const PANEL*)t.c + at));
            store(c + at, from_panel((const PANEL*)t.rest + at));
        }
        for (int64_t k = 0, next = speculation.steps; k < t.k; ++k, a += MR, b += ROW) {
            {
                const RoundingState mode(RoundingState::DOWN);
                make_odd(a, b);
            }
            finish();
            if (KIND != SUB || (k + 1 < next && k + 1 < t.k)) continue;
            if (!inside()) return false;
            next += speculation.steps;
        }
        for (int at = 0; at < size; at += C::L) to_panel((PANEL*)t.c + at, load<V>(s + at));
        for (int at = 0; !t.ends && at < size; at += C::L) to_panel((PANEL*)t.rest + at, load<V>(c + at));
        return true;
    }
};

template <class C, int KIND, class PANEL>
static __attribute__((noinline)) bool kahan_in_two_modes(const Tile& t, const Speculation& speculation) {
    return KahanInTwoModes<C, KIND, PANEL>(t, speculation).run();
}

}  // namespace gemmsim::NS
#endif
