// Compensated sums to nearest even on processors that round in one direction by a mode, of any operands: of a term, what has a product in
// it is made to odd under rounding down, for all rows of a tile, and all is rounded under rounding to nearest (two_modes.h). Kinds FTZ, of
// finite data, and SUB, the wager (compensated.h).
#pragma once
#include "tiles/compensated_step.h"
#include "tiles/directed.h"
#include "tiles/halves.h"

#if ISA_MODES
namespace gemmsim::NS {

// As Rounded, of products and sums of such that have been made to odd: the first operand.
template <class C, int KIND> struct RoundedFromOdd : Rounded<C, KIND, true> {
    typedef typename C::V V;
    template <int OP> INL_MEMBER V fused(V odd, V, V) const { return this->template round<OP>(odd); }
    static INL_MEMBER V product(V odd, V) { return odd; }
};

// PANEL: what panels and the tile's c are of; C's own type, or float for double lanes.
template <class C, int METHOD, int KIND, class PANEL> struct CompensatedTwoModes {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef CompensatedStep<C, METHOD> Step;
    static constexpr int VECTORS = NV * (int)(sizeof(T) / sizeof(PANEL)), ROW = VECTORS * C::L;

    const Tile& t;
    const Wager& wager;
    const bool rounds;
    const int size;
    const Const<C> ka, km;
    alignas(64) T s[(int)MR * ROW], c[(int)MR * ROW], x[(int)MR * ROW];

    CompensatedTwoModes(const Tile& tile, const Wager& w, bool mul_rounds)
        : t(tile), wager(w), rounds(mul_rounds), size(tile.rows * ROW), ka(Const<C>::make(*tile.add)), km(Const<C>::make(*tile.mul)), s{},
          c{} {}

    static INL_MEMBER V from_panel(const PANEL* p) {
        if constexpr (sizeof(PANEL) == sizeof(T)) return load<V>(p);
        else return widened(load<HalfFloats>(p));
    }
    static INL_MEMBER void to_panel(PANEL* p, V v) {
        if constexpr (sizeof(PANEL) == sizeof(T)) store(p, v);
        else store(p, __builtin_convertvector(v, HalfFloats));
    }

    // Under rounding down.
    template <bool FUSED> __attribute__((noinline)) void make_odd(const PANEL* a, const PANEL* b) {
        for (int i = 0; i < t.rows; ++i) {
            const V left = splat<C>((T)a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) {
                const int at = i * ROW + j * C::L;
                const V right = from_panel(b + j * C::L);
                store(x + at, FUSED ? fma_directed<C, RO>(left, right, -load<V>(c + at)) : mul_directed<C, RO>(left, right));
            }
        }
    }
    // Under rounding to nearest.
    template <bool ROUNDS> __attribute__((noinline)) void finish() {
        const RoundedFromOdd<C, KIND> add = {{ka}}, mul = {{km}};
#pragma GCC unroll 2
        for (int at = 0; at < size; at += C::L) {
            V sum = load<V>(s + at), lost = load<V>(c + at);
            Step::finish(Step::term(load<V>(x + at), V{}, lost, add, mul, ROUNDS), sum, lost, add);
            store(s + at, sum);
            store(c + at, lost);
        }
    }
    bool inside() const {
        const V most = splat<C>((T)wager.most);
        VI lost = {};
        for (int at = 0; at < size; at += C::L) lost |= ~(VI)((V)((VU)load<V>(s + at) & ~C::SIGN) < most);  // NaN is lost, too
        return none_set(lost);
    }
    template <bool ROUNDS> bool terms() {
        const PANEL *a = (const PANEL*)t.a, *b = (const PANEL*)t.b;
        for (int64_t k = 0, next = wager.steps; k < t.k; ++k, a += MR, b += ROW) {
            {
                const RoundingState mode(RoundingState::DOWN);
                make_odd<METHOD == KAHAN && !ROUNDS>(a, b);
            }
            finish<ROUNDS>();
            if (KIND != SUB || (k + 1 < next && k + 1 < t.k)) continue;
            if (!inside()) return false;
            next += wager.steps;
        }
        return true;
    }
    bool run() {
        if (!(rounds ? terms<true>() : terms<false>())) return false;
        const Rounded<C, KIND, true> add = {ka};
        for (int at = 0; at < size; at += C::L) {
            const V sum = load<V>(s + at);
            to_panel((PANEL*)t.c + at, METHOD == KAHAN || t.k == 0 ? sum : add.template add<LAST_SUM>(sum, load<V>(c + at)));
        }
        return true;
    }
};

template <class C, int METHOD, int KIND, class PANEL>
static bool compensated_two_modes(const Tile& t, const Wager& wager, bool rounds) {
    return CompensatedTwoModes<C, METHOD, KIND, PANEL>(t, wager, rounds).run();
}

}  // namespace gemmsim::NS
#endif
