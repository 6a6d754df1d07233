// Exact steps to nearest even of any finite operands under two modes, on processors whose rounding direction is a mode (ISA_MODES). They
// are the fallback of speculative kernels. First the sums of a term are rounded to odd under rounding down (round_to_odd.h). Then all of
// them are rounded to the format under rounding to nearest, which takes half of the instructions that integers take. A change of the mode
// costs as much as some instructions, and the rows of a tile have many.
//
// What runs under one mode is a function of its own that reads and writes memory. So no operation moves past a change of the mode.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/gemm_kernel.h"

#if ISA_MODES
namespace gemmsim::NS {

// Under rounding down: the sums (FMA_ODD) or the products (MA_ODD) of one term in ROWS rows, rounded to odd.
template <class C, int STEP, int ROWS>
static __attribute__((noinline)) void odd_terms(const typename C::T* a, const typename C::T* b, const typename C::T* c, typename C::T* x) {
    typedef typename C::V V;
    for (int j = 0; j < NV; ++j) {
        const V right = load<V>(b + j * C::L);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const int at = (i * NV + j) * C::L;
            const V left = splat<C>(a[i]);
            store(x + at, STEP == FMA_ODD ? fma_directed<C, RO>(left, right, load<V>(c + at)) : mul_directed<C, RO>(left, right));
        }
    }
}
template <class C, int ROWS> static __attribute__((noinline)) void odd_sums(const typename C::T* c, typename C::T* x) {
    typedef typename C::V V;
#pragma GCC unroll 8
    for (int at = 0; at < ROWS * NV * C::L; at += C::L) store(x + at, add_directed<C, RO>(load<V>(c + at), load<V>(x + at)));
}
// Under rounding to nearest: rounds the values of ROWS rows to the format.
template <class C, Rounding KIND, int ROWS>
static __attribute__((noinline)) void to_nearest(const typename C::T* x, typename C::T* r, const Const<C>& k) {
    typedef typename C::V V;
#pragma GCC unroll 4
    for (int at = 0; at < ROWS * NV * C::L; at += C::L) store(r + at, round_to<C, KIND>(load<V>(x + at), k, typename C::VU{}));
}

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
            odd_terms<C, STEP, ROWS>(a + k * MR, b + k * NV * C::L, c, x);
        }
        if (STEP == MA_ODD) {
            to_nearest<C, KIND, ROWS>(x, x, mul);
            const RoundingState mode(RoundingState::DOWN);
            odd_sums<C, ROWS>(c, x);
        }
        to_nearest<C, KIND, ROWS>(x, c, add);
    }
}

}  // namespace gemmsim::NS
#endif
