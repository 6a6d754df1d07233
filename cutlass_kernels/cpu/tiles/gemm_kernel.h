// Plain kernels of one tile of a matrix product: every sum (and product) is rounded to a run-time format (rounders.h). The loop over K is
// outermost, and the sums stay in CPU registers for all of K.
// They serve the steps and kinds that have no special kernel in the table of tiles.cpp. Speculative kernels use them as fallback.
#pragma once
#include "tiles/stochastic/random_bits.h"
#include "tiles/rounders.h"
#include "isa_table.h"

namespace gemmsim::NS {

// One step: adds a * b to s, as STEP says (enum Step in isa_table.h). rm and ra are the random bits of the product's and the sum's
// rounding.
template <class C, int STEP, Rounding KIND>
INL typename C::V step(typename C::V a, typename C::V b, typename C::V s, const Const<C>& mul, const Const<C>& add, typename C::VU rm,
                       typename C::VU ra) {
    typedef typename C::V V;
    if (STEP == FMA_NEAR) return round_to<C, KIND>(vfma(a, b, s), add, ra);
    if (STEP == FMA_ODD) return round_to<C, KIND>(fma_odd<C>(a, b, s), add, ra);
    const V q = round_to<C, KIND>(STEP == MA_NEAR ? a * b : mul_odd<C>(a, b), mul, rm);
    return round_to<C, KIND>(STEP == MA_NEAR ? s + q : add_odd<C>(s, q), add, ra);
}

template <class C, int STEP, Rounding KIND, int ROWS>
INL void rows_plain(const typename C::T* __restrict a, const typename C::T* __restrict b, typename C::T* c, int64_t K, const Const<C>& mul,
                    const Const<C>& add) {
    typedef typename C::V V;
    V s[ROWS][NV];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = 0; k < K; ++k) {
        V bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j)
                s[i][j] = step<C, STEP, KIND>(av, bv[j], s[i][j], mul, add, (typename C::VU){}, (typename C::VU){});
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, int STEP, Rounding KIND, int ROWS>
static __attribute__((noinline)) void rows_random(const Tile& t, int row, const Const<C>& mul, const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    const int rm = mul.random ? mul.rbits : 0, ra = add.random ? add.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C, ROWS> dm, da;
    V s[ROWS][NV];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = 0; k < t.k; ++k) {
        {
            const int64_t at = t.index(k);  // random bits belong to the absolute index of the term, wherever this run starts
            const bool fresh = k == 0 || t.kmap;
            if (STEP >= MA_NEAR && rm && (fresh || at % nm == 0)) dm.make(t, row, (uint32_t)(at / nm), SITE_PRODUCT);
            if (ra && (fresh || at % na == 0)) da.make(t, row, (uint32_t)(at / na), SITE_ADD);
            V bv[NV];
            for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) {
                    const VU xm = STEP >= MA_NEAR && rm ? dm.get(i, j, (int)(at % nm), rm) : (VU){};
                    const VU xa = ra ? da.get(i, j, (int)(at % na), ra) : (VU){};
                    s[i][j] = step<C, STEP, KIND>(av, bv[j], s[i][j], mul, add, xm, xa);
                }
            }
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, int STEP, Rounding KIND> static void tile(const Tile& t) {
    typedef typename C::T T;
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    if constexpr (KIND == Rounding::STOCHASTIC) {
        int row = 0;
        for (; row + 4 <= t.rows; row += 4) rows_random<C, STEP, KIND, 4>(t, row, mul, add);
        for (; row < t.rows; ++row) rows_random<C, STEP, KIND, 1>(t, row, mul, add);
    } else {
        enum { BLOCK = ISA_BLOCK(KIND) };
        const T *a = (const T*)t.a, *b = (const T*)t.b;
        T* c = (T*)t.c;
        int row = 0;
        for (; row + BLOCK <= t.rows; row += BLOCK) rows_plain<C, STEP, KIND, BLOCK>(a + row, b, c + row * NV * C::L, t.k, mul, add);
        if constexpr (KIND != Rounding::ANY_MODE)  // one row of ANY_MODE keeps the units busy already
            for (; row + 2 <= t.rows; row += 2) rows_plain<C, STEP, KIND, 2>(a + row, b, c + row * NV * C::L, t.k, mul, add);
        for (; row < t.rows; ++row) rows_plain<C, STEP, KIND, 1>(a + row, b, c + row * NV * C::L, t.k, mul, add);
    }
}

}  // namespace gemmsim::NS
