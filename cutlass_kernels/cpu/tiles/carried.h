// Stochastic rounding in float lanes with more random bits than these have places below the format's last one.
//
// A sum cut toward zero has d = 24 - p bits below the format's last place, and the random number its d highest bits and r - d
// others. These others decide only where the sum's d bits and the random number's d bits add up to 2^d - 1: then what was cut
// off and what was left out carry together or not. That is looked for in all sums of a few rows, with sums below 2^emin, and
// vectors that have one take the step again in double lanes, which hold everything.
#pragma once
#include <type_traits>
#include "tiles/directed_kernel.h"
#include "tiles/halves.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

constexpr bool is_carried(const gemmsim::Cast& c) { return c.p + c.rbits > C32::MB; }

// Finite data; the mode of the processor, if any, is toward zero.
template <bool CLAMP> static __attribute__((noinline)) C32::V carried_again(C32::V a, C32::V b, C32::V s, C32::VU R,
                                                                            const Const<C64>& add) {
    return in_halves(a, b, s, R, [&](C64::V x, C64::V y, C64::V z, C64::VU draws) __attribute__((always_inline)) {
        return step_directed<C64, FMA_ODD, SR, CLAMP>(x, y, z, add, add, draws, draws);
    });
}

template <bool CLAMP, int ROWS>
static __attribute__((noinline)) void rows_carried(const Tile& t, int row, const Const<C32>& add, const Const<C64>& wide) {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef C32::VU VU;
    constexpr int GROUP = ROWS < 2 ? 1 : 2;  // rows looked at together
    const float *a = (const float*)t.a + row, *b = (const float*)t.b;
    float* c = (float*)t.c + row * NV * C32::L;
    const int dropped = C32::MB + 1 - t.add->p, per_log = add.rbits > 16 ? 2 : 3, per = 1 << per_log;
    const Cut<C32> cut(add, t.add->p);
    const VU top = splat_u<C32>((uint32_t)(32 - dropped)), full = splat_u<C32>(0xFFFFFFFFu << (32 - dropped));
    const VU zero = splat_u<C32>((uint32_t)add.neg_zero);  // 1 where zeros are rounded as all others: they keep their signs
    Draws<C32, ROWS> draws;
    V s[ROWS][NV];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C32::L);
    // Term k, whose draw is number kk of its call; `place`: where draws are in its words.
    auto one = [&](int64_t k, int kk, auto place) __attribute__((always_inline)) {
        constexpr Place PLACE = decltype(place)::value;
        V bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C32::L);
#pragma GCC unroll 4
        for (int first = 0; first < ROWS; first += GROUP) {
            V sum[GROUP][NV], next[GROUP][NV];
            VU least = cut.normal, most = {};
#pragma GCC unroll 2
            for (int i = 0; i < GROUP; ++i) {
                const V av = splat<C32>(a[k * MR + first + i]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) {
                    const V x = sum[i][j] = fma_directed<C32, SR>(av, bv[j], s[first + i][j]);
                    const VU u = (VU)x + draws.template at<PLACE>(first + i, j, kk, dropped);
                    least = cut.least(least, x);
                    most = umax(most, u << top);
                    V r = (V)(u & cut.keep);
                    if (CLAMP) r = select<C32>((VI)(r < add.lo), add.over_neg, select<C32>((VI)(r > add.hi), add.over_pos, r));
                    next[i][j] = r;
                }
            }
            const bool carries = !none_set((VI)(most == full)), small = !cut.all_normal(least);
            if (__builtin_expect((int)carries | (int)small, 0)) {
#pragma GCC unroll 2
                for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
                    for (int j = 0; j < NV; ++j) {
                        const VU u = (VU)sum[i][j] + draws.template at<PLACE>(first + i, j, kk, dropped);
                        const VU mag = (VU)sum[i][j] & ~C32::SIGN;
                        const VI again = (VI)(mag - zero < add.normal_from - zero) | (VI)((VU)(u << top) == full);
                        if (!none_set(again))
                            next[i][j] = carried_again<CLAMP>(splat<C32>(a[k * MR + first + i]), bv[j], s[first + i][j],
                                                              draws.get(first + i, j, kk, add.rbits), wide);
                    }
            }
#pragma GCC unroll 2
            for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) s[first + i][j] = next[i][j];
        }
    };
    for (int64_t k = 0; k < t.k;) {
        const int64_t at = t.index(k);  // draws belong to the absolute index, wherever this run starts
        const int first = (int)(at & (per - 1)), most = t.kmap ? 1 : per - first, n = t.k - k < most ? (int)(t.k - k) : most;
        draws.make(t, row, (uint32_t)(at >> per_log), SITE_ADD);
        for (int kk = first; kk < first + n; ++kk, ++k) {
            if (per == 4) one(k, kk, std::integral_constant<Place, WORD>());
            else if (kk & 1) one(k, kk, std::integral_constant<Place, HIGH_HALF>());
            else one(k, kk, std::integral_constant<Place, LOW_HALF>());
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C32::L, s[i][j]);
}

// Of kinds FAST and FAST_CLAMP.
template <bool CLAMP> static void tile_carried(const Tile& t) {
    const Const<C32> add = Const<C32>::make(*t.add);
    const Const<C64> wide = Const<C64>::make(*t.add);
#if ISA_MODES
    const RoundingState state(mode_of(SR));
#endif
    int row = 0;
    for (; row + 4 <= t.rows; row += 4) rows_carried<CLAMP, 4>(t, row, add, wide);
    for (; row < t.rows; ++row) rows_carried<CLAMP, 1>(t, row, add, wide);
}

// Of kind RANDOM: all in double lanes.
static void tile_in_halves(const Tile& t) {
    typedef C32::V V;
    const Const<C64> add = Const<C64>::make(*t.add);
    const int per = add.rbits > 16 ? 4 : 8;
    for (int row = 0; row < t.rows; ++row) {
        Draws<C32, 1> draws;
        float* c = (float*)t.c + row * NV * C32::L;
        for (int64_t k = 0; k < t.k; ++k) {
            const int64_t at = t.index(k);
            const int kk = (int)(at % per);
            if (k == 0 || t.kmap || kk == 0) draws.make(t, row, (uint32_t)(at / per), SITE_ADD);
            for (int j = 0; j < NV; ++j) {
                float* const to = c + j * C32::L;
                const V r = in_halves(splat<C32>(((const float*)t.a)[k * MR + row]), load<V>((const float*)t.b + (k * NV + j) * C32::L),
                                      load<V>(to), draws.get(0, j, kk, add.rbits),
                                      [&](C64::V x, C64::V y, C64::V z, C64::VU R)
                                          __attribute__((always_inline)) { return step<C64, FMA_ODD, RANDOM>(x, y, z, add, add, R, R); });
                store(to, r);
            }
        }
    }
}

}  // namespace gemmsim::NS
#endif
