// Nearest sums (arithmetic="fp32") of any values, rounded in another mode, on processors whose rounding direction is a mode (ISA_MODES).
// For each term, the sums of some rows are computed under rounding to nearest. They are then rounded under the mode of their cast
// (directed.h). directed_kernel.h uses this with clamps, and where many sums are not normal numbers.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/gemm_kernel.h"

#if ISA_MODES
namespace gemmsim::NS {

// Under rounding to nearest: adds one term to ROWS rows.
template <class C, int ROWS>
static __attribute__((noinline)) void nearest_sums_of(const typename C::T* a, const typename C::T* b, typename C::T* c) {
    typedef typename C::V V;
    for (int j = 0; j < NV; ++j) {
        const V right = load<V>(b + j * C::L);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            typename C::T* const s = c + (i * NV + j) * C::L;
            store(s, vfma(splat<C>(a[i]), right, load<V>(s)));
        }
    }
}
// Under mode_of(MODE): rounds the sums of ROWS rows.
template <class C, int MODE, bool CLAMP, int ROWS>
static __attribute__((noinline)) void round_rows(typename C::T* c, const Const<C>& add, const Draws<C, MODE == SR ? ROWS : 1>& draws,
                                                 int kk) {
    typedef typename C::V V;
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            typename C::T* const s = c + (i * NV + j) * C::L;
            const typename C::VU R = MODE == SR ? draws.get(MODE == SR ? i : 0, j, kk, add.rbits) : (typename C::VU){};
            store(s, round_directed<C, MODE, CLAMP>(load<V>(s), add, R));
        }
}

// Terms from `from` on of ROWS rows, with the sums in the tile's c.
template <class C, int MODE, bool CLAMP, int ROWS> static void rows_near_in_mode(const Tile& t, int row, int64_t from,
                                                                                 const Const<C>& add) {
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* const c = (T*)t.c + row * NV * C::L;
    const int per = MODE == SR && add.rbits > 16 ? 4 : 8;
    Draws<C, MODE == SR ? ROWS : 1> draws;
    for (int64_t k = from; k < t.k; ++k) {
        const int64_t at = MODE == SR ? t.index(k) : 0;  // random bits belong to the absolute index of the term
        if (MODE == SR && (k == from || t.kmap || at % per == 0)) draws.make(t, row, (uint32_t)(at / per), SITE_ADD);
        nearest_sums_of<C, ROWS>(a + k * MR, b + k * NV * C::L, c);
        const RoundingState mode(mode_of(MODE));
        round_rows<C, MODE, CLAMP, ROWS>(c, add, draws, (int)(at % per));
    }
}

}  // namespace gemmsim::NS
#endif
