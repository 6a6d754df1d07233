// One tile of a matrix product in a mode other than nearest even, by directed operations (directed.h). tiles.cpp uses it for kinds DIRECTED and
// DIRECTED_CLAMP. Stochastic fused steps in float lanes have another kernel (tiles/stochastic/stochastic.h), unless Tile::nearest_sums is set.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/gemm_kernel.h"
#include "tiles/rescaled_tile.h"
#include "tiles/speculate.h"
#include "tiles/directed/mode_switch.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

template <class C, int STEP, int MODE, bool CLAMP>
INL typename C::V step_directed(typename C::V a, typename C::V b, typename C::V s, const Const<C>& mul, const Const<C>& add,
                                typename C::VU rm, typename C::VU ra) {
    typedef typename C::V V;
    if (STEP == FMA_NEAR) return round_directed<C, MODE, CLAMP>(ISA_MODES ? plus_zero<C, MODE>(vfma(a, b, s)) : vfma(a, b, s), add, ra);
    if (STEP == FMA_ODD) return round_directed<C, MODE, CLAMP>(plus_zero<C, MODE>(fma_directed<C, MODE>(a, b, s)), add, ra);
    const V q = round_directed<C, MODE, CLAMP>(STEP == MA_NEAR ? a * b : mul_directed<C, MODE>(a, b), mul, rm);
    return round_directed<C, MODE, CLAMP>(STEP == MA_NEAR && !ISA_MODES ? s + q : plus_zero<C, MODE>(add_directed<C, MODE>(s, q)), add, ra);
}

// Truncates a step's sums where all are normal numbers of the format, by an addition to the bits and a mask. The least magnitude says
// whether all are normal; zeros count as small.
// For RESCALED values (rescaled_tile.h) the AND of the sums says it. AVX-512 takes two sums in one instruction.
template <class C, bool RESCALED = false> struct Truncation {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VU keep, half, up, normal;

    explicit Truncation(const Const<C>& k, int p)
        : keep(splat_u<C>(~(((typename C::U)1 << (C::MB + 1 - p)) - 1))), half(splat_u<C>((typename C::U)1 << (C::MB - p))),
          up(splat_u<C>((typename C::U)(C::MB + 1 - p - k.rbits))), normal(RESCALED ? VU{} - 1 : from_magnitude(k.normal_from)) {}
    template <int MODE> INL_MEMBER V round(V s, VU R) const {
        VU u = (VU)s;
        if (MODE == RU || MODE == RD) u = before_truncation<C, MODE>(u, ~keep);
        if (MODE == RNA) u += half;
        if (MODE == SR) u += R << up;
        if (MODE == RO) u |= (u & ~keep) + ~keep;  // any bit below the last place carries into it
        return (V)(u & keep);
    }
    // The least of `so_far`, which is `normal` at first, and of two sums.
    INL_MEMBER VU least_of(VU so_far, V s, V s1) const {
#if ISA_AVX512
        if constexpr (RESCALED) return in_register((VU)_mm512_ternarylogic_epi32((__m512i)so_far, (__m512i)s, (__m512i)s1, 0x80));
#endif
        if constexpr (RESCALED) return in_register(in_register(so_far & (VU)s) & (VU)s1);
        else return least(least(so_far, s), s1);
    }
#if ISA_DIRECTED
    static VU from_magnitude(VU u) { return u; }
    INL_MEMBER VU least(VU least, V s) const { return (VU)least_magnitude((V)least, s); }
#else
    static VU from_magnitude(VU u) { return u * 2; }
    INL_MEMBER VU least(VU least, V s) const {
        const VU u = (VU)s + (VU)s;
        if constexpr (sizeof(typename C::T) == 4) return umin(least, u);
        else return (VU)((VI)(u ^ C::SIGN) < (VI)(least ^ C::SIGN) ? u : least);
    }
#endif
    INL_MEMBER bool all_normal(VU least) const {
#if ISA_AVX512
        if constexpr (RESCALED) return _mm512_testn_epi32_mask((__m512i)least, _mm512_set1_epi32(1 << 30)) == 0;
#elif ISA_AVX2
        if constexpr (RESCALED) return _mm256_movemask_ps((__m256)(least + least)) == 0xFF;
#endif
        return none_set((VI)(least ^ normal));
    }
};

// Computes ROWS rows. NEAR: sums are nearest ones, and the processor's mode is to nearest. Returns where it ended: at the tile's end or,
// with NEAR, earlier where sums that are not normal numbers are frequent.
template <class C, int STEP, int MODE, bool CLAMP, bool RESCALED, bool NEAR, int ROWS>
static __attribute__((noinline)) int64_t rows_directed(const Tile& t, int row, const Const<C>& mul, const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    // Terms that one Philox call serves. Both casts use it alike, because the planner sends casts of different widths to other kernels.
    const int per = MODE == SR && add.rbits > 16 ? 4 : 8;
    Draws<C, ROWS> dm, da;
    RegisterBlock<C, ROWS> s;
    s.get(c);
    constexpr bool TRUNCATES = !CLAMP && STEP < MA_NEAR;
    const Truncation<C, RESCALED> truncation(add, t.add->p);
    int64_t k = 0, found = 0;
    const int64_t terms = t.k;
    bool gives_up = false;
    auto one = [&](int64_t k, int kk) __attribute__((always_inline)) {
        V bv[NV];
        VU least = truncation.normal;
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
        s.each([&](int i, int j) __attribute__((always_inline)) {
            const V av = splat<C>(a[k * MR + i]);
            const VU xm = MODE == SR && STEP >= MA_NEAR ? dm.get(i, j, kk, mul.rbits) : (VU){};
            const VU xa = MODE == SR ? da.get(i, j, kk, add.rbits) : (VU){};
            if (TRUNCATES) {
                s[i][j] = STEP == FMA_ODD ? fma_directed<C, MODE>(av, bv[j], s[i][j]) : vfma(av, bv[j], s[i][j]);
                if (j % 2) least = truncation.least_of(least, s[i][j - 1], s[i][j]);
            } else s[i][j] = step_directed<C, STEP, MODE, CLAMP>(av, bv[j], s[i][j], mul, add, xm, xa);
        });
        if (!TRUNCATES) return;
        const auto each = [&](auto f) __attribute__((always_inline)) {
            s.each([&](int i, int j)
                       __attribute__((always_inline)) { s[i][j] = f(s[i][j], MODE == SR ? da.get(i, j, kk, add.rbits) : (VU){}); });
        };
        if (__builtin_expect(truncation.all_normal(least), 1))
            each([&](V x, VU R) __attribute__((always_inline)) { return truncation.template round<MODE>(x, R); });
        else {
            if (NEAR && fails_often<4, 32>(++found, k)) gives_up = true;
            each([&](V x, VU R) __attribute__((always_inline)) {
                if (NEAR) return round_general<C, MODE == SR>(x, add, R);
                return round_directed<C, MODE, CLAMP>(plus_zero<C, MODE>(x), add, R);
            });
        }
    };
    if (MODE == SR) {
        while (k < terms && !gives_up) {
            const int64_t at = t.index(k);  // random bits belong to the absolute index of the term, wherever this run starts
            const int first = (int)(at % per), most = t.kmap ? 1 : per - first, left = terms - k < most ? (int)(terms - k) : most;
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
        for (; k < terms && !(NEAR && gives_up); ++k) one(k, 0);
    }
    s.put(c);
    return k;
}

template <class C, int STEP, int MODE, bool CLAMP, bool RESCALED, bool NEAR, int ROWS>
INL void all_terms(const Tile& t, int row, const Const<C>& mul, const Const<C>& add) {
    const int64_t k = rows_directed<C, STEP, MODE, CLAMP, RESCALED, NEAR, ROWS>(t, row, mul, add);
#if ISA_MODES
    if constexpr (NEAR) return rows_near_in_mode<C, MODE, CLAMP, ROWS>(t, row, k, add);
#endif
    (void)k;
}

template <class C, int STEP, int MODE, bool CLAMP, bool RESCALED = false, bool NEAR = false>
static void tile_mode(const Tile& t, const Const<C>& mul, const Const<C>& add) {
    int row = 0;
#if ISA_MODES
    const RoundingState state(NEAR ? RoundingState::NEAREST : mode_of(MODE));
#endif
    // Eight rows hide more of a step's latency than four. With random bits they would not fit the CPU registers.
    if constexpr (MODE != SR && (ISA_DIRECTED || ISA_NEON))
        for (; row + 8 <= t.rows; row += 8) all_terms<C, STEP, MODE, CLAMP, RESCALED, NEAR, 8>(t, row, mul, add);
    for (; row + 4 <= t.rows; row += 4) all_terms<C, STEP, MODE, CLAMP, RESCALED, NEAR, 4>(t, row, mul, add);
    for (; row < t.rows; ++row) all_terms<C, STEP, MODE, CLAMP, RESCALED, NEAR, 1>(t, row, mul, add);
}

#if ISA_MODES
// Nearest sums rounded in another mode. Without clamps their bits are truncated.
template <class C, int MODE, bool CLAMP> static void tile_near_in(const Tile& t, const Const<C>& add) {
    if constexpr (!CLAMP) return tile_mode<C, FMA_NEAR, MODE, false, false, true>(t, add, add);
    int row = 0;
    for (; row + 8 <= t.rows; row += 8) rows_near_in_mode<C, MODE, CLAMP, 8>(t, row, 0, add);
    for (; row < t.rows; ++row) rows_near_in_mode<C, MODE, CLAMP, 1>(t, row, 0, add);
}
template <class C, bool CLAMP> static void tile_near_in_mode(const Tile& t) {
    const Const<C> add = Const<C>::make(*t.add);
    switch (add.mode) {
        case RNA: return tile_near_in<C, RNA, CLAMP>(t, add);
        case RTZ: return tile_near_in<C, RTZ, CLAMP>(t, add);
        case RU: return tile_near_in<C, RU, CLAMP>(t, add);
        case RD: return tile_near_in<C, RD, CLAMP>(t, add);
        case RO: return tile_near_in<C, RO, CLAMP>(t, add);
        default: return tile_near_in<C, SR, CLAMP>(t, add);
    }
}
#endif

#if ISA_AVX2 || ISA_AVX512
template <int STEP> static void tile_mode_rescaled(const Tile& tile) {
    const RescaledTile t(tile);
    const Const<C32> add = Const<C32>::make(*t.add);
    tile_mode<C32, STEP, RTZ, false, true>(t, add, add);
}
#endif

}  // namespace gemmsim::NS
#endif
