// Speculative kernels of a plain nearest-even register in float lanes that truncate the bits of its sums, four rows at a time.
//
// Sums on a midpoint are computed again in any case (speculative.h), so that the rounding of the others need not handle ties. Half of the
// last place is added to the bits, and the bits below that place are cleared: two short instructions. A sum is on a midpoint if nothing is
// below that place after the addition. Steps that need no check for midpoints are rounded by the carrier's own operations.
// Values may be checked after their rounding, and one just below 2^emin may have become 2^emin. That is right, because the wider grid below
// 2^emin gives 2^emin as well.
#pragma once
#include "tiles/stochastic/float64_lanes.h"
#include "tiles/nearest/speculative.h"

#if ISA_DIRECTED || (ISA_MODES && !ISA_NEON)
namespace gemmsim::NS {

// How sums below 2^emin are detected. NOT_SMALL: there are none. RESCALED: by the exponent's highest bit in rescaled sums.
// SMALL_MAGNITUDES: by magnitudes. IN_16_BITS: there are none, and a midpoint plus half of the last place has zeros in its lower 16 bits.
enum Smallness : int { NOT_SMALL = 0, RESCALED = 1, SMALL_MAGNITUDES = 2, IN_16_BITS = 3 };

// The highest bit of a float's exponent.
constexpr uint32_t HIGH_EXPONENT = 1u << 30;

// Constants of the bits: what is added to them (half), which are kept (keep), which are discarded (low), and which AVX2 checks
// (checked_bits). For RESCALED the checked bits include the exponent's highest bit.
struct Places {
    typedef C32::VU VU;
    VU half, keep, low, checked_bits;
    explicit Places(int p, int smallness = NOT_SMALL)
        : half(in_register(splat_u<C32>(1u << (C32::MB - p)))), keep(in_register(splat_u<C32>(~0u << (C32::MB + 1 - p)))),
          low(in_register(~keep)), checked_bits(in_register(~keep | splat_u<C32>(smallness == RESCALED ? HIGH_EXPONENT : 0))) {}
};

// What the sums were like since an object of this type was made.
#if ISA_DIRECTED
template <bool TIES, int SMALLNESS> struct SeenTruncated {
    typedef C32::VI VI;
    static constexpr int CHAINS = 4;  // chains of masks, because an update of a mask waits for the one before it
    __mmask16 uneven[CHAINS] = {0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF};
    VI normal = VI{} - 1, held = {};
    C32::V least = splat<C32>(Const<C32>::power(C32::EMAX));

    INL_MEMBER void note_ties(C32::VU t, const Places& w, int n) {
        __mmask16& mask = uneven[n % CHAINS];
        if (TIES) mask = _mm512_mask_test_epi32_mask(mask, (__m512i)t, (__m512i)w.low);
    }
    INL_MEMBER void check(C32::V r, int n) {
        if (SMALLNESS == SMALL_MAGNITUDES) least = least_magnitude(least, r);
        if (SMALLNESS != RESCALED) return;
        if (n % 2) normal = in_register((VI)_mm512_ternarylogic_epi32((__m512i)normal, (__m512i)held, (__m512i)r, 0x80));
        else held = (VI)r;
    }
    INL_MEMBER bool found(const CheckConstants<C32>& w) const {
        __mmask16 good = 0xFFFF;
        if (SMALLNESS == RESCALED) good = _mm512_test_epi32_mask((__m512i)normal, _mm512_set1_epi32(HIGH_EXPONENT));
        if (SMALLNESS == SMALL_MAGNITUDES) good = _mm512_cmpge_epi32_mask((__m512i)least, (__m512i)w.normal);
        if (TIES) good = _kand_mask16(good, _kand_mask16(_kand_mask16(uneven[0], uneven[1]), _kand_mask16(uneven[2], uneven[3])));
        return !_kortestc_mask16_u8(good, good);
    }
};
#else
template <bool TIES, int SMALLNESS> struct SeenTruncated {
    typedef C32::VI VI;
    VI least = splat_i<C32>(SMALLNESS == IN_16_BITS ? -1 : INT32_MAX);

    // The checked bits are an integer. On a midpoint it is the exponent's bit alone (zero without RESCALED). For a small sum it is less
    // than that bit, and for every other sum it is more. So the least of these integers detects both.
    // in_register keeps the compiler from making a tree of this chain of minima.
    INL_MEMBER void note_ties(C32::VU t, const Places& w, int) {
        if (SMALLNESS == IN_16_BITS) least = in_register((VI)_mm256_min_epu16((__m256i)least, (__m256i)t));
        else least = in_register(imin(least, (VI)(t & w.checked_bits)));
    }
    INL_MEMBER void check(C32::V, int) {}
    INL_MEMBER bool found(const CheckConstants<C32>&) const {
        if (SMALLNESS != IN_16_BITS) return !none_set(least <= (VI)splat_u<C32>(SMALLNESS == RESCALED ? HIGH_EXPONENT : 0));
        const __m256i none = _mm256_cmpeq_epi16((__m256i)least, _mm256_setzero_si256());
        return !none_set((VI)_mm256_slli_epi32(none, 16));  // the upper halves do not matter
    }
};
#endif

constexpr int TRUNCATED_ROWS = 4;  // rows that are checked together

// The fallback for one vector's step. Of exact steps it tries truncation first. Under modes it then tries a rounding by a power of two, and
// takes double lanes last.
template <int STEP, Rounding KIND> INL C32::V recompute_exactly(C32::V a, C32::V b, C32::V s, const Places& w,
                                                                const CheckConstants<C32>& checks, const Const<C32>& add,
                                                                const Const<C64>& wide) {
    typedef C32::VU VU;
    if (STEP == FMA_ODD) {
        const C32::V x = vfma(a, b, s);
        const VU t = (VU)x + w.half;
        C32::VI inexact = (C32::VI)((VU)(t & w.low) == VU{});
        if (KIND != Rounding::NORMAL) inexact |= checks.below_normal(x);
        if (__builtin_expect(none_set(inexact), 1)) return (C32::V)(t & w.keep);
#if ISA_MODES
        C32::VI wrong = {};
        const C32::V r = Speculative<C32, STEP, KIND, ALL, TRUNCATED_ROWS, false>::template recompute<true>(x, checks, add, wrong);
        if (none_set(wrong)) return r;
        return in_two_halves(a, b, s, VU{}, [&](C64::V p, C64::V q, C64::V r, C64::VU) __attribute__((always_inline)) {
            return round_to<C64, KIND>(fma_odd<C64>(p, q, r), wide, C64::VU{});
        });
#endif
    }
    (void)wide;
    return step<C32, STEP, KIND>(a, b, s, add, add, VU{}, VU{});
}

// The constants of one tile.
struct TruncatedTile {
    const Tile& t;
    const Const<C32> add;
    const Const<C64> wide;
    const CheckConstants<C32> checks;
    explicit TruncatedTile(const Tile& tile)
        : t(tile), add(Const<C32>::make(*tile.add)), wide(Const<C64>::make(*tile.add)), checks(add, *tile.add) {}
};

// Truncation ends where checks fail more often than once, plus once in RARE terms. AVX2 then continues with one term at a time, and ends
// only if that fails too often as well.
template <int TERMS> constexpr int RARE = TERMS == 1 ? 4 : ISA_DIRECTED ? 8 : 56;

// The fallback for terms [k, k + n), from the sums in the tile's c.
template <int STEP, Rounding KIND> static __attribute__((noinline)) void recompute_segment(const TruncatedTile& x, int row, int64_t k,
                                                                                           int n) {
    const Places places(x.t.add->p);
    const float *a = (const float*)x.t.a + k * MR + row, *b = (const float*)x.t.b + k * NV * C32::L;
    for (int u = 0; u < n; ++u)
        for (int i = 0; i < TRUNCATED_ROWS; ++i)
            for (int j = 0; j < NV; ++j) {
                float* const c = (float*)x.t.c + ((row + i) * NV + j) * C32::L;
                const C32::V bv = load<C32::V>(b + (u * NV + j) * C32::L);
                store(c, recompute_exactly<STEP, KIND>(splat<C32>(a[u * MR + i]), bv, load<C32::V>(c), places, x.checks, x.add, x.wide));
            }
}

template <int STEP, Rounding KIND, int SMALLNESS> struct TruncatedRows {
    typedef C32::V V;
    typedef C32::VU VU;
    static constexpr bool TIES = STEP == FMA_ODD;
    static constexpr int L = C32::L;

    const TruncatedTile& x;
    const Places places;
    const float* __restrict const a;
    const float* __restrict const b;
    float* __restrict const c;
    const int row;
    typedef RegisterBlock<C32, TRUNCATED_ROWS> Block;
    Block s;
    const int64_t to;
    int64_t from, end, found = 0;

    INL_MEMBER TruncatedRows(const TruncatedTile& tile, int first, int64_t from_, int64_t last)
        : x(tile), places(tile.t.add->p, SMALLNESS), a((const float*)tile.t.a + first), b((const float*)tile.t.b),
          c((float*)tile.t.c + first * NV * L), row(first), to(last), from(from_), end(last) {}

    // Terms [k, k + STEPS). The sums stay in CPU registers. The sums before these terms are in other registers (AVX-512) or in memory
    // (AVX2).
    template <int STEPS> INL_MEMBER void steps(int64_t k) {
        const float *const ak = a + k * MR, *const bk = b + k * NV * L;
        SeenTruncated<TIES, SMALLNESS> seen;
        Block before;
        if (ISA_DIRECTED) before = s;
        else {
            s.put(c);
            __asm__ volatile("" ::: "memory");
        }
#pragma GCC unroll 2
        for (int u = 0; u < STEPS; ++u) {
            s.each([&](int i, int j) __attribute__((always_inline)) {
                const V sum = vfma(splat<C32>(ak[u * MR + i]), load<V>(bk + (u * NV + j) * L), s[i][j]);
                if (TIES) {
                    const VU t = (VU)sum + places.half;
                    seen.note_ties(t, places, i * NV + j);
                    s[i][j] = (V)(t & places.keep);
                    seen.check(s[i][j], i * NV + j);
                } else {
                    seen.check(sum, i * NV + j);
                    s[i][j] = x.checks.round(sum);
                }
            });
            if (!ISA_DIRECTED) __asm__ volatile("" ::: "memory");  // keeps the compiler from reading panels before it uses them
        }
        if (__builtin_expect(seen.found(x.checks), 0)) {
            if (ISA_DIRECTED && STEPS == 1) {
                s.each([&](int i, int j) __attribute__((always_inline)) {
                    s[i][j] =
                        step<C32, STEP, KIND>(in_register(splat<C32>(ak[i])), load<V>(bk + j * L), before[i][j], x.add, x.add, VU{}, VU{});
                });
            } else {
                if (ISA_DIRECTED) before.put(c);
                recompute_segment<STEP, KIND>(x, row, k, STEPS);
                s.get(c);
            }
            if (fails_often<RARE<STEPS>, RARE<STEPS>>(++found, k - from)) end = k + STEPS;
        }
        // The sums are in CPU registers after both branches.
        s.each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = in_register(s[i][j]); });
    }
    INL_MEMBER int64_t run() {
        s.get(c);
        int64_t k = from;
        // Terms that are checked together. AVX2 has no registers left for the sums before a step, and stores them for each check.
        constexpr int TOGETHER = TIES && ISA_DIRECTED ? 1 : 2;
        for (; k + TOGETHER <= end; k += TOGETHER) steps<TOGETHER>(k);
        if (!ISA_DIRECTED) {
            found = 0;
            from = k;
            end = to;
        }
        for (; k < end; ++k) steps<1>(k);
        s.put(c);
        return k;
    }
};

// Terms [from, to) of four rows. Returns where it ended: at `to`, or earlier where the checks fail often.
template <int STEP, Rounding KIND, int SMALLNESS>
static __attribute__((noinline)) int64_t rows_truncated(const TruncatedTile& x, int row, int64_t from, int64_t to) {
    TruncatedRows<STEP, KIND, SMALLNESS> rows(x, row, from, to);
    return rows.run();
}

// Terms [from, to) of four or eight rows. Of eight rows the second four run to where the first four ended, and the fallback then takes all
// eight. Where checks of the first four fail often, those of the others most likely do as well. The fallback is faster for eight rows.
template <int STEP, Rounding KIND, int SMALLNESS, int ROWS> static void walk_truncated(const TruncatedTile& x, int row, int64_t from,
                                                                                       int64_t to) {
    const auto fast = [&](int64_t k) {
        const int64_t at = rows_truncated<STEP, KIND, SMALLNESS>(x, row, k, to);
        if constexpr (ROWS > TRUNCATED_ROWS) walk_truncated<STEP, KIND, SMALLNESS, ROWS - TRUNCATED_ROWS>(x, row + TRUNCATED_ROWS, k, at);
        return at;
    };
    speculate(from, to, fast, [&](int64_t k, int64_t n) { exact_segment<C32, STEP, KIND, ROWS>(x.t, row, k, n, x.add, x.add); });
}

template <int STEP, Rounding KIND, int SMALLNESS> static void all_truncated(const Tile& t) {
    const TruncatedTile x(t);
    if (t.rows == 2 * TRUNCATED_ROWS) return walk_truncated<STEP, KIND, SMALLNESS, 2 * TRUNCATED_ROWS>(x, 0, 0, t.k);
    int row = 0;
    for (; row + TRUNCATED_ROWS <= t.rows; row += TRUNCATED_ROWS) walk_truncated<STEP, KIND, SMALLNESS, TRUNCATED_ROWS>(x, row, 0, t.k);
    for (; row < t.rows; row += 2) {
        if (row + 2 <= t.rows) speculate_rows<C32, STEP, KIND, ALL, 2>(t, row, x.add, x.add);
        else speculate_rows<C32, STEP, KIND, ALL, 1>(t, row, x.add, x.add);
    }
}

// Entry point of kinds NORMAL and SUBNORMALS.
template <int STEP, Rounding KIND> static void tile_truncated(const Tile& t) {
    if constexpr (KIND == Rounding::NORMAL) {
        if (!ISA_DIRECTED && C32::MB + 1 - t.add->p >= HALF_OF_FLOAT) return all_truncated<STEP, KIND, IN_16_BITS>(t);
        return all_truncated<STEP, KIND, NOT_SMALL>(t);
    } else {
        if (!ISA_DIRECTED || t.scaled_by) return all_truncated<STEP, KIND, RESCALED>(RescaledTile(t));
        if constexpr (ISA_DIRECTED) all_truncated<STEP, KIND, SMALL_MAGNITUDES>(t);
    }
}

}  // namespace gemmsim::NS
#endif
