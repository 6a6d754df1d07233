// Every mode but nearest-even by directed rounding instructions (AVX-512 embedded rounding; CUDA has the same ones).
//
// With P = 2^(max(e, emin) - p + 1 + MB), signed like s, the sum s + P rounded in some direction lies on the grid of
// quantum P * 2^-MB, and rounding twice in one direction is rounding once. So
//   toward zero      rz(s + P) - P
//   up, down         ru, rd likewise
//   nearest, away    half a quantum is added first, toward zero
//   stochastic       R * 2^-r of a quantum is added first, toward zero: floor(nu * 2^r) + R carries or not
// Exact while p + r <= MB: everything above 2^-r of a quantum is in the carrier.
#pragma once
#include "rounders.h"

#if ISA_AVX512
namespace gemmsim { namespace NS {

template <class C, int MODE> INL typename C::V fma_directed(typename C::V a, typename C::V b, typename C::V c) {
    return MODE == RU ? fma_ru(a, b, c) : MODE == RD ? fma_rd(a, b, c) : fma_rz(a, b, c);
}
template <class C, int MODE> INL typename C::V mul_directed(typename C::V a, typename C::V b) {
    return MODE == RU ? mul_ru(a, b) : MODE == RD ? mul_rd(a, b) : mul_rz(a, b);
}
template <class C, int MODE> INL typename C::V add_directed(typename C::V a, typename C::V b) {
    return MODE == RU ? add_ru(a, b) : MODE == RD ? add_rd(a, b) : add_rz(a, b);
}

// An exact zero sum of unlike signs is +0 in every mode of ours; the machine's toward-minus gives -0. (The register
// itself is never -0 in that mode: it starts at +0 and negative values do not round up to zero.)
template <class C, int MODE> INL typename C::V plus_zero(typename C::V s) { return MODE == RD ? s + (typename C::V){} : s; }

template <class C, int MODE, bool CLAMP> INL typename C::V round_directed(typename C::V s, const Const<C>& k, typename C::VU R) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    if (CLAMP) s = vmin(k.big_hi, vmax(k.big_lo, s));
    const VU sign = (VU)s & C::SIGN;
    const VI lift = k.base << C::MB;
    const V P = (V)((VU)imax((VI)((VU)s & C::EXP) + lift, k.power_min) | sign);
    V x = s;
    if (MODE == SR) x = fma_rz(P, to_float(R) * k.random_scale, s);
    if (MODE == RNA) x = fma_rz(P, splat<C>(Const<C>::power(-C::MB - 1)), s);
    V r = add_directed<C, MODE>(x, P) - P;
    r = (V)((VU)r | (sign & k.keep_sign));
    if (!CLAMP) return r;
    r = select<C>((VI)(r > k.hi), k.over_pos, r);
    return select<C>((VI)(r < k.lo), k.over_neg, r);
}

template <class C, int STEP, int MODE, bool CLAMP>
INL typename C::V step_directed(typename C::V a, typename C::V b, typename C::V s, const Const<C>& mul, const Const<C>& add, typename C::VU rm, typename C::VU ra) {
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
        for (int64_t k = 0; k < t.k; k += per) {
            if (STEP >= MA_NEAR) dm.make(t, row, (uint32_t)(k / per), SITE_PRODUCT);
            da.make(t, row, (uint32_t)(k / per), SITE_ADD);
            const int end = t.k - k < per ? (int)(t.k - k) : per;
            if (end == 8) {
                for (int kk = 0; kk < 8; kk += 2) {
                    one(k + kk, kk);
                    one(k + kk + 1, kk + 1);
                }
            } else {
                for (int kk = 0; kk < end; ++kk) one(k + kk, kk);
            }
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

}}  // namespace gemmsim::NS
#endif
