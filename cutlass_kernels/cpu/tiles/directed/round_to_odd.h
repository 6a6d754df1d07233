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

template <class C, int STEP, bool RANDOM> INL typename C::V down_to_odd(typename C::V a, typename C::V b, typename C::V s,
                                                                        const Const<C>& mul, const Const<C>& add, typename C::VU rm,
                                                                        typename C::VU ra) {
    if (STEP == FMA_ODD) return round_general<C, RANDOM>(fma_directed<C, RO>(a, b, s), add, ra);
    const typename C::V q = round_general<C, RANDOM>(mul_directed<C, RO>(a, b), mul, rm);
    return round_general<C, RANDOM>(add_directed<C, RO>(s, q), add, ra);
}

// Terms [from, to) of ROWS rows, with the sums in the tile's c. The processor's mode is down.
template <class C, int STEP, bool RANDOM, int ROWS>
static __attribute__((noinline)) void rows_to_odd(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul,
                                                  const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    const int rm = RANDOM && mul.random && STEP >= MA_NEAR ? mul.rbits : 0, ra = RANDOM && add.random ? add.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C, RANDOM ? ROWS : 1> dm, da;
    V s[ROWS][NV];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = from; k < to; ++k) {
        const int64_t at = t.index(k);  // random bits belong to the absolute index of the term, wherever this run starts
        const bool fresh = k == from || t.kmap;
        if (RANDOM && rm && (fresh || at % nm == 0)) dm.make(t, row, (uint32_t)(at / nm), SITE_PRODUCT);
        if (RANDOM && ra && (fresh || at % na == 0)) da.make(t, row, (uint32_t)(at / na), SITE_ADD);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>(a[k * MR + i]);
            for (int j = 0; j < NV; ++j) {
                const VU xm = RANDOM && rm ? dm.get(i, j, (int)(at % nm), rm) : (VU){};
                const VU xa = RANDOM && ra ? da.get(i, j, (int)(at % na), ra) : (VU){};
                s[i][j] = down_to_odd<C, STEP, RANDOM>(av, load<V>(b + (k * NV + j) * C::L), s[i][j], mul, add, xm, xa);
            }
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, int STEP, bool RANDOM, int ROWS>
INL void run_to_odd(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul, const Const<C>& add) {
    const RoundingState state(RoundingState::DOWN);
    rows_to_odd<C, STEP, RANDOM, ROWS>(t, row, from, to, mul, add);
}

// The entry point: any deterministic or stochastic mode, any overflow policy, any operands.
template <class C, int STEP, bool RANDOM> static void tile_to_odd(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    constexpr int ROWS = RANDOM ? 2 : 1;
    int row = 0;
    for (; row + ROWS <= t.rows; row += ROWS) run_to_odd<C, STEP, RANDOM, ROWS>(t, row, 0, t.k, mul, add);
    if (row < t.rows) run_to_odd<C, STEP, RANDOM, 1>(t, row, 0, t.k, mul, add);
}

}  // namespace gemmsim::NS
#endif
