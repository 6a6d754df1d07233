// Exact steps of tiles on processors whose rounding direction is a mode (ISA_MODES) and not part of the instruction. tiles.cpp uses them
// for kinds ANY_MODE and RANDOM.
//
// Under rounding down, a*b + c and -(-a*b - c) are the two directed results, for any operands. The odd one of them is the sum rounded to
// odd. The rounding to the format is in integers (round_general), which the mode does not affect.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/gemm_kernel.h"

#if ISA_MODES
namespace gemmsim::NS {

// One step. The processor's mode is down.
template <class C, int STEP, bool RANDOM> struct DownToOdd {
    typedef typename C::V V;
    typedef typename C::VU VU;
    static INL_MEMBER V of(V a, V b, V s, const Const<C>& mul, const Const<C>& add, VU rm, VU ra) {
        if (STEP == FMA_ODD) return round_general<C, RANDOM>(fma_directed<C, RO>(a, b, s), add, ra);
        const V q = round_general<C, RANDOM>(mul_directed<C, RO>(a, b), mul, rm);
        return round_general<C, RANDOM>(add_directed<C, RO>(s, q), add, ra);
    }
};

// The entry point: any deterministic or stochastic mode, any overflow policy, any operands.
template <class C, int STEP, bool RANDOM> static void tile_to_odd(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    constexpr int ROWS = RANDOM ? 2 : 1;
    const RoundingState state(RoundingState::DOWN);
    int row = 0;
    for (; row + ROWS <= t.rows; row += ROWS) rows_drawn<DownToOdd<C, STEP, RANDOM>, C, STEP, RANDOM, ROWS>(t, row, 0, t.k, mul, add);
    if (row < t.rows) rows_drawn<DownToOdd<C, STEP, RANDOM>, C, STEP, RANDOM, 1>(t, row, 0, t.k, mul, add);
}

}  // namespace gemmsim::NS
#endif
