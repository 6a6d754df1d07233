// Exact or nearest steps that change the rounding mode for each term, on processors whose rounding direction is a mode (ISA_MODES). The
// values of one term are computed for some rows under one mode. They are then rounded to the format under another one. A change of the
// mode costs as much as some instructions, and the rows of a tile have many.
//
// run_in_two_modes(): exact steps to nearest even of any finite operands, the fallback of speculative kernels. Values are rounded to odd
// under rounding down (round_to_odd.h), and to the format under rounding to nearest. That takes half of the instructions that integers
// take.
// rows_near_in_mode(): nearest sums (arithmetic="fp32") of any values, rounded under the mode of their cast (directed.h).
// directed_kernel.h uses it with clamps, and where many sums are not normal numbers.
//
// What runs under one mode is a function of its own that reads and writes memory. So no operation moves past a change of the mode.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/gemm_kernel.h"

#if ISA_MODES
namespace gemmsim::NS {

// x = the values of one term in ROWS rows, whose sums are c. FMA_NEAR: nearest sums. FMA_ODD and MA_ODD: sums and products to odd, under
// rounding down.
template <class C, int STEP, int ROWS>
static __attribute__((noinline)) void values_of_term(const typename C::T* a, const typename C::T* b, const typename C::T* c,
                                                     typename C::T* x) {
    typedef typename C::V V;
    for (int j = 0; j < NV; ++j) {
        const V right = load<V>(b + j * C::L);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const int at = (i * NV + j) * C::L;
            const V left = splat<C>(a[i]);
            if (STEP == MA_ODD) store(x + at, mul_directed<C, RO>(left, right));
            else store(x + at, STEP == FMA_ODD ? fma_directed<C, RO>(left, right, load<V>(c + at)) : vfma(left, right, load<V>(c + at)));
        }
    }
}
// x = the sums of c and x to odd, under rounding down.
template <class C, int ROWS> static __attribute__((noinline)) void odd_sums(const typename C::T* c, typename C::T* x) {
    typedef typename C::V V;
#pragma GCC unroll 8
    for (int at = 0; at < ROWS * NV * C::L; at += C::L) store(x + at, add_directed<C, RO>(load<V>(c + at), load<V>(x + at)));
}
// c = the values x of ROWS rows, rounded by Round::of() under the mode that it needs. `draws`: random bits, of which number kk is used.
template <class Round, class C, int ROWS, class Bits>
static __attribute__((noinline)) void round_values(const typename C::T* x, typename C::T* c, const Const<C>& k, const Bits& draws, int kk) {
    typedef typename C::V V;
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            const int at = (i * NV + j) * C::L;
            store(c + at, Round::of(load<V>(x + at), k, draws, i, j, kk));
        }
}
template <class C, Rounding KIND> struct ToNearest {
    typedef typename C::V V;
    template <class Bits> static INL_MEMBER V of(V x, const Const<C>& k, const Bits&, int, int, int) {
        return round_to<C, KIND>(x, k, typename C::VU{});
    }
};
template <class C, int MODE, bool CLAMP> struct InMode {
    typedef typename C::V V;
    template <class Bits> static INL_MEMBER V of(V x, const Const<C>& k, const Bits& draws, int i, int j, int kk) {
        return round_directed<C, MODE, CLAMP>(x, k, MODE == SR ? draws.get(MODE == SR ? i : 0, j, kk, k.rbits) : typename C::VU{});
    }
};

// Terms [from, to) of ROWS rows, with the sums in the tile's c.
template <class C, int STEP, Rounding KIND, int ROWS>
static void run_in_two_modes(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul, const Const<C>& add) {
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* const c = (T*)t.c + row * NV * C::L;
    alignas(WIDTH) T x[ROWS * NV * C::L];
    for (int64_t k = from; k < to; ++k) {
        {
            const RoundingState mode(RoundingState::DOWN);
            values_of_term<C, STEP, ROWS>(a + k * MR, b + k * NV * C::L, c, x);
        }
        if (STEP == MA_ODD) {
            round_values<ToNearest<C, KIND>, C, ROWS>(x, x, mul, 0, 0);
            const RoundingState mode(RoundingState::DOWN);
            odd_sums<C, ROWS>(c, x);
        }
        round_values<ToNearest<C, KIND>, C, ROWS>(x, c, add, 0, 0);
    }
}

// Terms from `from` on of ROWS rows, with the sums in the tile's c.
template <class C, int MODE, bool CLAMP, int ROWS>
static void rows_near_in_mode(const Tile& t, int row, int64_t from, const Const<C>& add) {
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* const c = (T*)t.c + row * NV * C::L;
    const int per = MODE == SR && add.rbits > 16 ? 4 : 8;
    Draws<C, MODE == SR ? ROWS : 1> draws;
    for (int64_t k = from; k < t.k; ++k) {
        const int64_t at = MODE == SR ? t.index(k) : 0;  // random bits belong to the absolute index of the term
        if (MODE == SR && (k == from || t.kmap || at % per == 0)) draws.make(t, row, (uint32_t)(at / per), SITE_ADD);
        values_of_term<C, FMA_NEAR, ROWS>(a + k * MR, b + k * NV * C::L, c, c);
        const RoundingState mode(mode_of(MODE));
        round_values<InMode<C, MODE, CLAMP>, C, ROWS>(c, c, add, draws, (int)(at % per));
    }
}

}  // namespace gemmsim::NS
#endif
