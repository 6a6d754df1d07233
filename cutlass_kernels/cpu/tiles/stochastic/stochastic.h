// A tile of a stochastic register in float lanes, with one rounding a step. It serves fused steps of kinds DIRECTED and DIRECTED_CLAMP, tiles of
// rescaled.h, and those of kind STOCHASTIC that have wide random bits.
//
// A sum rounded toward zero to float has d = 24 - p bits below the format's last place. An integer addition adds the d highest random bits
// to these, and the result is truncated. That is right as long as the sum is a normal number of the format. The sums of a few rows are
// checked together. Where one is not normal, they are rounded by round_directed() (directed.h).
//
// There may be more than d random bits. The others decide only where the sum's d bits and the first d random bits add up to 2^d - 1. What
// the sum lost toward zero and the random bits that were left out then carry together or not. The check detects this as well. Vectors that
// have such a sum take the step again in double lanes, which have all bits.
#pragma once
#include <type_traits>
#include "tiles/directed/directed_kernel.h"
#include "tiles/stochastic/float64_lanes.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

constexpr bool has_wide_random_bits(const gemmsim::Cast& c) { return c.p + c.rbits > C32::MB; }

// Where a draw is in its word. Its d highest bits are taken from there, or its r < d bits at the upper end of d places. OF_WORD: it is the
// whole word. OF_HIGH: it is the upper half. The others: it is the lower half. OF_LOW has d < 16, ALL_OF_LOW has d = r = 16, and OF_LOW_UP
// has d >= 16 and r < d.
enum Take { OF_WORD, OF_HIGH, OF_LOW, ALL_OF_LOW, OF_LOW_UP };

template <bool WIDE_BITS> struct Taken {
    typedef C32::VU VU;
    VU right, low_right, upper, lower;  // shifts of the upper and lower half (or a factor instead); masks of r bits of each half
    Taken(int d, int r)
        : right(splat_u<C32>((uint32_t)(32 - d))), low_right(shift_of(d)), upper(splat_u<C32>(0xFFFFFFFFu << (32 - r))),
          lower(splat_u<C32>(r > 16 ? 0 : 0xFFFFu & (0xFFFF0000u >> r))) {}
#if ISA_AVX512
    static VU shift_of(int d) { return splat_u<C32>((uint32_t)(d < 16 ? 16 - d : d - 16)); }
    INL_MEMBER VU of_low(VU x) const { return (VU)_mm512_maskz_srlv_epi16(0x55555555, (__m512i)x, (__m512i)low_right); }
#elif ISA_AVX2  // of_low() is the upper half of the product with 2^d in lanes of 16 bits; every other factor is 0
    static VU shift_of(int d) { return splat_u<C32>(WIDE_BITS ? (d < 16 ? 1u << d : 0) : (uint32_t)(d < 16 ? 16 - d : d - 16)); }
    INL_MEMBER VU of_low(VU x) const { return (VU)_mm256_mulhi_epu16((__m256i)x, (__m256i)low_right); }
#else
    static VU shift_of(int d) { return splat_u<C32>((uint32_t)(d < 16 ? 16 - d : d - 16)); }
    INL_MEMBER VU of_low(VU x) const { return (x & 0xFFFFu) >> low_right; }
#endif
    template <Take TAKE> INL_MEMBER VU from(VU x) const {
        if (TAKE == OF_WORD || TAKE == OF_HIGH) return (WIDE_BITS ? x : x & upper) >> right;
        if (TAKE == OF_LOW_UP) return (x & lower) << low_right;
        if (TAKE == ALL_OF_LOW) return x & lower;
        return WIDE_BITS ? of_low(x) : (x & lower) >> low_right;
    }
};

// The fallback in double lanes, for finite data. Under modes the processor's mode must be toward zero.
template <bool CLAMP> INL C32::V recompute_stochastic(C32::V a, C32::V b, C32::V s, C32::VU R, const Const<C64>& add) {
    return in_two_halves(a, b, s, R, [&](C64::V x, C64::V y, C64::V z, C64::VU draws) __attribute__((always_inline)) {
        return step_directed<C64, FMA_ODD, SR, CLAMP>(x, y, z, add, add, draws, draws);
    });
}

// STEP is FMA_NEAR or FMA_ODD. RESCALED: values are rescaled so that sums below 2^emin are rounded as others are (rescaled.h); CLAMP is
// false.
template <int STEP, bool WIDE_BITS, bool CLAMP, bool RESCALED = false> struct Stochastic {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef C32::VU VU;
    const Tile& t;
    const Const<C32> add;
    const Const<C64> wide;
    const int dropped, per_log;
    const Truncation<C32> truncation;
    const Taken<WIDE_BITS> taken;
    Draws<C32, MR> draws;

    explicit Stochastic(const Tile& tile)
        : t(tile), add(Const<C32>::make(*t.add)), wide(Const<C64>::make(*t.add)), dropped(C32::MB + 1 - t.add->p),
          per_log(add.rbits > 16 ? 2 : 3), truncation(add, t.add->p), taken(dropped, add.rbits) {}

    // Loops vector by vector. A copy of a whole array would go by half vectors, for which the loads that follow would have to wait.
    template <int ROWS, class F> static INL_MEMBER void each(F f) { RegisterBlock<C32, ROWS>::each(f); }
    static INL_MEMBER V sum_of(V a, V b, V s) { return STEP == FMA_NEAR ? vfma(a, b, s) : fma_directed<C32, SR>(a, b, s); }
    static INL_MEMBER V clamp(V r, const Const<C32>& add) {
        return CLAMP ? select<C32>((VI)(r < add.lo), add.over_neg, select<C32>((VI)(r > add.hi), add.over_pos, r)) : r;
    }

    // The fallback for n terms from k on of `rows` rows. Their draws are those from number kk on of their Philox call. Each vector takes
    // the cheapest way that its sums allow.
    __attribute__((noinline)) void recompute(int row, int rows, int64_t k, int kk, int n, V* s) const {
        const VU zero = splat_u<C32>((uint32_t)add.neg_zero);  // 1 where zeros keep their signs: they are then rounded like normal numbers
        for (const int end = kk + n; kk < end; ++kk, ++k)
            for (int i = 0; i < rows; ++i) {
                const V a = splat<C32>(((const float*)t.a)[k * MR + row + i]);
                for (int j = 0; j < NV; ++j) {
                    const V b = load<V>((const float*)t.b + (k * NV + j) * C32::L), before = s[i * NV + j], x = sum_of(a, b, before);
                    const VU R = draws.get(row + i, j, kk, add.rbits);
                    V& to = s[i * NV + j];
                    if (!WIDE_BITS) {
                        to = round_directed<C32, SR, CLAMP>(x, add, R);
                        continue;
                    }
                    const VU u = (VU)x + (R >> (add.rbits - dropped)), mag = (VU)x & ~C32::SIGN;
                    const VI small = RESCALED ? (VI){} : (VI)(mag - zero < add.normal_from - zero),
                             found = small | (VI)((VU)(u | truncation.keep) == ~(VU){});
                    to = none_set(found) ? clamp((V)(u & truncation.keep), add) : recompute_stochastic<CLAMP>(a, b, before, R, wide);
                }
            }
    }

    // The constants that a step needs in CPU registers, and what its sums were like.
    struct Fast {
        const Taken<WIDE_BITS> taken;
        const VU keep, normal;
        VU least, most;
        INL_MEMBER explicit Fast(const Stochastic& s) : taken(s.taken), keep(s.truncation.keep), normal(s.truncation.normal) {}
        INL_MEMBER bool found() const {
#if ISA_AVX512
            const int small = RESCALED ? 0 : _mm512_cmpneq_epi32_mask((__m512i)least, (__m512i)normal);
            return (WIDE_BITS ? small | _mm512_cmpeq_epi32_mask((__m512i)most, _mm512_set1_epi32(-1)) : small) != 0;
#else
            const VU unlike = RESCALED ? (VU){} : least ^ normal;
            return !none_set((VI)(WIDE_BITS ? unlike | (VU)(most == ~(VU){}) : unlike));
#endif
        }
    };

    // A position in the terms: term k, its elements of a and b, and its draws w. These are draws from number kk on of a Philox call, and w
    // is at those of the first row's first vector.
    struct At {
        const float *a, *b;
        const VU* w;
        int64_t k;
        int kk;
    };

    // Computes the term that is `next` places after `at`. With OF_WORD its draw is `next` words further.
    template <Take TAKE, int ROWS> INL_MEMBER void step(const At& at, int next, V (&s)[ROWS][NV], Fast& f) const {
        const VU* const w = at.w + (TAKE == OF_WORD ? next : 0);
        const float *const a = at.a + next * MR, *const b = at.b + next * NV * C32::L;
        each<ROWS>([&](int i, int j) __attribute__((always_inline)) {
            const V x = sum_of(splat<C32>(a[i]), load<V>(b + j * C32::L), s[i][j]);
            const VU u = (VU)x + f.taken.template from<TAKE>(w[(i * NV + j) * 4]);
            if (!RESCALED) f.least = truncation.least(f.least, x);
            if (WIDE_BITS) f.most = umax(f.most, u | f.keep);
            s[i][j] = clamp((V)(u & f.keep), add);
        });
    }

    // Computes N terms, at most two, whose sums are checked together. TAKE says where the first one's draw is.
    template <Take TAKE, int N, int ROWS> INL_MEMBER void checked_bits(int row, const At& at, V (&s)[ROWS][NV], Fast& f) const {
        if (RESCALED && !WIDE_BITS) {
            step<TAKE>(at, 0, s, f);
            if (N == 2) step<TAKE == OF_WORD ? OF_WORD : OF_HIGH>(at, 1, s, f);
            return;
        }
        V before[ROWS][NV];
        each<ROWS>([&](int i, int j) __attribute__((always_inline)) { before[i][j] = s[i][j]; });
        f.least = f.normal;
        f.most = (VU){};
        step<TAKE>(at, 0, s, f);
        if (N == 2) step<TAKE == OF_WORD ? OF_WORD : OF_HIGH>(at, 1, s, f);
        if (__builtin_expect(f.found(), 0)) {
            V again[ROWS * NV];
            each<ROWS>([&](int i, int j) __attribute__((always_inline)) { again[i * NV + j] = before[i][j]; });
            recompute(row, ROWS, at.k, at.kk, N, again);
            each<ROWS>([&](int i, int j) __attribute__((always_inline)) { s[i][j] = again[i * NV + j]; });
        }
    }

    // Computes n terms whose draws are those of one Philox call from number `first` on.
    template <Take LOW, int ROWS> INL_MEMBER void terms(int row, int64_t k, int first, int n) const {
        enum { PER = LOW == OF_WORD ? 4 : 8, WORDS = LOW == OF_WORD ? 2 : 1 };  // draws of a call; words of two terms
        float* const c = (float*)t.c + row * NV * C32::L;
        V s[ROWS][NV];
        each<ROWS>([&](int i, int j) __attribute__((always_inline)) { s[i][j] = load<V>(c + (i * NV + j) * C32::L); });
        Fast f(*this);
        At at = {(const float*)t.a + k * MR + row, (const float*)t.b + k * NV * C32::L, draws.w[row][0], k, first};
        if (n == PER) {
#pragma GCC unroll 1
            for (; at.kk < PER; at.kk += 2, at.k += 2, at.a += 2 * MR, at.b += 2 * NV * C32::L, at.w += WORDS)
                checked_bits<LOW, 2>(row, at, s, f);
        } else {
#pragma GCC unroll 1
            for (; at.kk < first + n; ++at.kk, ++at.k, at.a += MR, at.b += NV * C32::L) {
                at.w = draws.w[row][0] + (LOW == OF_WORD ? at.kk : at.kk >> 1);
                if (LOW == OF_WORD || !(at.kk & 1)) checked_bits<LOW, 1>(row, at, s, f);
                else checked_bits<OF_HIGH, 1>(row, at, s, f);
            }
        }
        each<ROWS>([&](int i, int j) __attribute__((always_inline)) { store(c + (i * NV + j) * C32::L, s[i][j]); });
    }

    INL_MEMBER void ahead(int64_t k, int n) const {
        enum { LINE = 64 / sizeof(float) };
        const float *const a = (const float*)t.a + k * MR, *const b = (const float*)t.b + k * NV * C32::L;
        for (int i = 0; i < n * MR; i += LINE) __builtin_prefetch(a + i);
        for (int i = 0; i < n * NV * C32::L; i += LINE) __builtin_prefetch(b + i);
    }

    template <Take LOW> void run() {
        enum { GROUP = 2 };  // rows whose sums stay in CPU registers
        const int per = 1 << per_log;
        for (int64_t k = 0; k < t.k;) {
            const int64_t at = t.index(k);  // random bits belong to the absolute index of the term, wherever this run starts
            const int first = (int)(at & (per - 1)), most = t.kmap ? 1 : per - first, n = t.k - k < most ? (int)(t.k - k) : most;
            ahead(k, n);  // prefetches while random bits are made, which reads no memory
            draws.make(t, 0, (uint32_t)(at >> per_log), SITE_ADD, t.rows);
            int row = 0;
            for (; row + GROUP <= t.rows; row += GROUP) terms<LOW, GROUP>(row, k, first, n);
            if (row < t.rows) terms<LOW, 1>(row, k, first, n);
            k += n;
        }
    }
    void all() {
        if (add.rbits > 16) run<OF_WORD>();
        else if (dropped < 16) run<OF_LOW>();
        else if (WIDE_BITS) run<ALL_OF_LOW>();
        else run<OF_LOW_UP>();
    }
};

// Kinds DIRECTED and DIRECTED_CLAMP of fused steps.
template <int STEP, bool WIDE_BITS, bool CLAMP> static void tile_stochastic(const Tile& t) {
    Stochastic<STEP, WIDE_BITS, CLAMP> kernel(t);
#if ISA_MODES
    const RoundingState state(mode_of(SR));
#endif
    kernel.all();
}

// Kind STOCHASTIC where the random bits are wide: all steps in double lanes.
[[maybe_unused]] static void tile_in_two_halves(const Tile& t) {
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
                const V r = in_two_halves(splat<C32>(((const float*)t.a)[k * MR + row]), load<V>((const float*)t.b + (k * NV + j) * C32::L),
                                          load<V>(to), draws.get(0, j, kk, add.rbits),
                                          [&](C64::V x, C64::V y, C64::V z, C64::VU R) __attribute__((always_inline)) {
                                              return step<C64, FMA_ODD, Rounding::STOCHASTIC>(x, y, z, add, add, R, R);
                                          });
                store(to, r);
            }
        }
    }
}

}  // namespace gemmsim::NS
#endif
