// One tile of a matrix product in a mode other than nearest-even, by directed rounding instructions (directed.h).
#pragma once
#include "directed.h"
#include "gemm_kernel.h"

#if ISA_AVX512
namespace gemmsim::NS {

template <class C, int STEP, int MODE, bool CLAMP>
INL typename C::V step_directed(typename C::V a, typename C::V b, typename C::V s, const Const<C>& mul, const Const<C>& add,
                                typename C::VU rm, typename C::VU ra) {
    typedef typename C::V V;
    if (STEP == FMA_NEAR) return round_directed<C, MODE, CLAMP>(vfma(a, b, s), add, ra);
    if (STEP == FMA_ODD) return round_directed<C, MODE, CLAMP>(plus_zero<C, MODE>(fma_directed<C, MODE>(a, b, s)), add, ra);
    const V q = round_directed<C, MODE, CLAMP>(STEP == MA_NEAR ? a * b : mul_directed<C, MODE>(a, b), mul, rm);
    return round_directed<C, MODE, CLAMP>(STEP == MA_NEAR ? s + q : plus_zero<C, MODE>(add_directed<C, MODE>(s, q)), add, ra);
}

template <class C, int STEP, int MODE, bool CLAMP, int ROWS>
static __attribute__((noinline)) void rows_directed(const Tile& t, int row, const Const<C>& mul, const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    // one block of k per Philox call; both casts draw alike (the planner sends mixed widths elsewhere)
    const int per = MODE == SR && add.rbits > 16 ? 4 : 8;
    Draws<C, ROWS> dm, da;
    V s[ROWS][NV];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    auto one = [&](int64_t k, int kk) __attribute__((always_inline)) {
        V bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const VU xm = MODE == SR && STEP >= MA_NEAR ? dm.get(i, j, kk, mul.rbits) : (VU){};
                const VU xa = MODE == SR ? da.get(i, j, kk, add.rbits) : (VU){};
                s[i][j] = step_directed<C, STEP, MODE, CLAMP>(av, bv[j], s[i][j], mul, add, xm, xa);
            }
        }
    };
    if (MODE == SR) {
        for (int64_t k = 0; k < t.k;) {
            const int64_t at = t.index(k);  // draws belong to the absolute index, wherever this run starts
            const int first = (int)(at % per), most = t.kmap ? 1 : per - first, left = t.k - k < most ? (int)(t.k - k) : most;
            if (STEP >= MA_NEAR) dm.make(t, row, (uint32_t)(at / per), SITE_PRODUCT);
            da.make(t, row, (uint32_t)(at / per), SITE_ADD);
            if (left == 8) {
                for (int kk = 0; kk < 8; kk += 2) {
                    one(k + kk, kk);
                    one(k + kk + 1, kk + 1);
                }
            } else {
                for (int kk = 0; kk < left; ++kk) one(k + kk, first + kk);
            }
            k += left;
        }
    } else {
        for (int64_t k = 0; k < t.k; ++k) one(k, 0);
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, int STEP, int MODE, bool CLAMP> static void tile_mode(const Tile& t, const Const<C>& mul, const Const<C>& add) {
    int row = 0;
    if constexpr (MODE != SR)  // more rows hide more of a step's latency; draws would not fit the registers
        for (; row + 8 <= t.rows; row += 8) rows_directed<C, STEP, MODE, CLAMP, 8>(t, row, mul, add);
    for (; row + 4 <= t.rows; row += 4) rows_directed<C, STEP, MODE, CLAMP, 4>(t, row, mul, add);
    for (; row < t.rows; ++row) rows_directed<C, STEP, MODE, CLAMP, 1>(t, row, mul, add);
}

template <class C, int STEP, bool CLAMP> static void tile_directed(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    switch (add.mode) {
        case RNA: return tile_mode<C, STEP, RNA, CLAMP>(t, mul, add);
        case RTZ: return tile_mode<C, STEP, RTZ, CLAMP>(t, mul, add);
        case RU: return tile_mode<C, STEP, RU, CLAMP>(t, mul, add);
        case RD: return tile_mode<C, STEP, RD, CLAMP>(t, mul, add);
        default: return tile_mode<C, STEP, SR, CLAMP>(t, mul, add);
    }
}

}  // namespace gemmsim::NS
#endif
