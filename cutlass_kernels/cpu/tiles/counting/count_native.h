// Counts events at additions to a register that is float itself, rounded to nearest (CountBy::NATIVE). The processor's
// own sum is the register's sum. Only whether it lost something has to be found out.
//
// Let L be the lowest bit set in a product. Where L is below the last bit of s and of x = R(s + q), the exact sum has this bit and x
// does not: the step is inexact. A bound of L for a row and all columns of a tile shows this for most steps. A lower bound of the
// products, together with an upper bound of the sums, shows that no register is swamped. Nothing else has to be counted in these
// steps. In the other steps, the error of the sum is computed (by Knuth's TwoSum and the error of the product). It is exact in
// this range of operands (count_range.h).
#pragma once
#include "tiles/counting/count_directed.h"
#include "tiles/counting/count_fast.h"
#include "tiles/round_product.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

#if ISA_AVX512
typedef BlockBounds TileBounds;
constexpr int NATIVE_ROWS = 4;
template <int ROWS> static bool native_rows_of(const Tile& t, int nr, int row, int, bool, const TileBounds& bounds, const EventTile& into) {
    return directed_rows<ROWS>(t, nr, row, bounds, into);
}
#else
// RUN: number of terms whose bounds are computed at a time. PAIR: number of terms that are checked together. NATIVE_ROWS: number of
// rows whose sums have registers.
constexpr int64_t RUN = 512, PAIR = 2;
constexpr int NATIVE_ROWS = 2;

// Returns a number between half of the lowest bit set in x and that bit, or infinity for 0. Where no bit of the fraction is set, the
// bit that is cleared belongs to the exponent, and the result is such a lower bound.
INL float lowest_bit(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u &= u - 1;
    float rest;
    memcpy(&rest, &u, sizeof rest);
    return x == 0 ? __builtin_inff() : __builtin_fabsf(x - rest);
}

// One full step of a row's vector: x = R(s + a * b). `unsure`: where neither exact nor inexact is certain.
INL void native_step(C32::V a, C32::V b, C32::V x, C32::V s, C32::VI& swamped, C32::VI& exact, Mask& unsure) {
    typedef C32::V V;
    const V q = a * b, lost = vfms(a, b, q);
    const V sum = s + q, z = sum - s, error = (s - (sum - z)) + (q - z);
    const V moved = x - sum;
    const Mask equal = equals(moved - error, lost);
    swamped = counted(swamped, but(equals(x, s), equal));
    exact = counted(exact, equal);
    unsure = either(unsure, but(equal, equals(moved, (V){})));
}

// The same for a product that float represents.
INL void exact_product_step(C32::V a, C32::V b, C32::V& s, C32::VI& swamped, C32::VI& exact) {
    typedef C32::V V;
    const V q = a * b, x = s + q, z = x - s, error = (s - (x - z)) + (q - z);
    const Mask equal = equals(error, (V){});
    swamped = counted(swamped, but(equals(x, s), equal));
    exact = counted(exact, equal);
    s = x;
}

// The largest lanes of two vectors.
struct Largest {
    uint32_t a, b;
};
#if ISA_NEON
INL Largest largest_lanes(C32::VU a, C32::VU b) { return {vmaxvq_u32((uint32x4_t)a), vmaxvq_u32((uint32x4_t)b)}; }
INL bool all_set(C32::VI x) { return none_set(~x); }
#else
INL __m128i halves_max(C32::VU x) { return _mm_max_epu32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1)); }
INL Largest largest_lanes(C32::VU a, C32::VU b) {
    const __m128i p = halves_max(a), q = halves_max(b);
    const __m128i both = _mm_max_epu32(_mm_unpacklo_epi32(p, q), _mm_unpackhi_epi32(p, q));
    const uint64_t x = (uint64_t)_mm_cvtsi128_si64(_mm_max_epu32(both, _mm_shuffle_epi32(both, 0x4E)));
    return {(uint32_t)x, (uint32_t)(x >> 32)};
}
INL bool all_set(C32::VI x) { return _mm256_movemask_ps((__m256)x) == 0xFF; }
#endif

// Sums and counts of ROWS rows, as full steps leave them.
template <int ROWS> struct NativeSums : CountedRows<C32, ROWS> {
    Mask unsure;
};

// A full step, outside of the loop of usual steps, whose sums and counts stay in registers. `a`: of the rows; `b`: of the columns.
template <int ROWS> static __attribute__((noinline)) void native_step_of(const float* a, const float* b, NativeSums<ROWS>& held) {
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            const C32::V x = splat<C32>(a[i]), y = load<C32::V>(b + j * C32::L), s = held.sum[i][j];
            held.sum[i][j] = vfma(x, y, s);
            native_step(x, y, held.sum[i][j], s, held.swamped[i][j], held.exact[i][j], held.unsure);
        }
}

// Bounds of panels have one place for every PAIR of terms and two rows of a tile. The first bit of a segment is NaN where a factor of
// the segment is outside of the range.
constexpr int64_t PLACES = MR / 2;
INL int64_t place_of(int64_t n) { return n / PAIR * PLACES; }

// Bounds for a segment of terms of a tile, as bits times two. Where sums are at least `least`, steps are known to be inexact. Where the
// sums before a pair are at most `most`, no register is swamped.
struct TileBounds {
    static constexpr int64_t SIZE = RUN / PAIR * PLACES;
    uint32_t least[SIZE + C32::L], most[SIZE + C32::L];

    // Takes terms [n, n + k) of the panels. False: a factor is outside of the range.
    bool make(const PanelBounds& a, const PanelBounds& b, int64_t n, int64_t k, bool narrow) {
        typedef C32::V V;
        typedef C32::VU VU;
        const int64_t first = place_of(n), size = place_of(k);
        if (a.bit[(size_t)first] != a.bit[(size_t)first] || b.bit[(size_t)first] != b.bit[(size_t)first]) return false;
        for (int64_t i = 0; i < size && !narrow; i += C32::L) {
            const auto at = [&](const std::vector<float>& x) __attribute__((always_inline)) { return load<V>(x.data() + first + i); };
            const V room = at(a.least) * at(b.least) - at(a.most) * at(b.most);
            store(least + i, (VU)(at(a.bit) * at(b.bit)) << 1);
            store(most + i, (VU)vmax(room, V{}) << 1);
        }
        return true;
    }
};

// Adds all terms to ROWS rows and NV vectors of columns from `at` on. FULL: the tile has all these columns. False: a sum became
// infinite or NaN, or a step is not certain, and nothing is changed. Where products are exact (BOUNDS is false), `bounds` are unused.
template <bool BOUNDS, bool FULL, int ROWS> static __attribute__((noinline)) bool native_rows(const Tile& t, int nr, int row, int at,
                                                                                              const TileBounds& bounds,
                                                                                              const EventTile& into) {
    typedef C32::V V;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b + at;
    const uint32_t *least_of = bounds.least + row / 2, *most_of = bounds.most + row / 2;
    float* const c = (float*)t.c + row * nr + at;
    typedef RegisterBlock<C32, ROWS> Block;
    NativeSums<ROWS> held;
    Block sum;
    C32::VU padding[NV];  // columns that the tile lacks count as large
    if (!FULL)
        for (int j = 0; j < NV; ++j)
            for (int l = 0; l < C32::L; ++l) padding[j][l] = at + j * C32::L + l < t.cols ? 0 : ~0u;
    // Magnitudes are bits with the sign shifted out, which needs no register for a mask.
    const auto smallest = [&](const Block& x) __attribute__((always_inline)) {
        C32::VU least = {};
        x.each([&](int i, int j) __attribute__((always_inline)) {
            const C32::VU size = FULL ? (C32::VU)x[i][j] << 1 : (C32::VU)x[i][j] << 1 | padding[j];
            least = i + j ? umin(least, size) : size;
        });
        return least;
    };
    const auto largest = [](const Block& x) __attribute__((always_inline)) {  // padding is zero
        C32::VU most = {};
        x.each([&](int i, int j)
                   __attribute__((always_inline)) { most = i + j ? umax(most, (C32::VU)x[i][j] << 1) : (C32::VU)x[i][j] << 1; });
        return most;
    };
    held.unsure = Mask{};
    held.get(c, nr);
    sum.get(c, nr);
    if constexpr (!BOUNDS) {
        CountedRows<C32, ROWS> rows = held;
        for (int64_t n = 0; n < t.k; ++n)
            sum.each([&](int i, int j) __attribute__((always_inline)) {
                exact_product_step(splat<C32>(a[n * MR + i]), load<V>(b + n * nr + j * C32::L), sum[i][j], rows.swamped[i][j],
                                   rows.exact[i][j]);
            });
        memcpy(held.swamped, rows.swamped, sizeof rows.swamped);
        memcpy(held.exact, rows.exact, sizeof rows.exact);
    } else {
        C32::VU before = smallest(sum), most = largest(sum);
        const auto add = [&](int64_t n) __attribute__((always_inline)) {
            sum.each([&](int i, int j) __attribute__((always_inline)) {
                sum[i][j] = vfma(splat<C32>(a[n * MR + i]), load<V>(b + n * nr + j * C32::L), sum[i][j]);
            });
        };
        int64_t n = 0;
        for (; n + PAIR <= t.k; n += PAIR, least_of += PLACES, most_of += PLACES) {
            held.sum = sum;
            add(n);
            const C32::VU first = smallest(sum);
            add(n + 1);
            const C32::VU second = smallest(sum), least = umin(umin(first, second), before);
            const C32::VI usual =
                (C32::VI)(umax(least, splat_u<C32>(*least_of)) == least) & (C32::VI)(umin(most, splat_u<C32>(*most_of)) == most);
            before = second;
            most = largest(sum);
            if (__builtin_expect(all_set(usual), 1)) continue;
            for (int64_t u = n; u < n + PAIR; ++u) native_step_of<ROWS>(a + u * MR, b + u * nr, held);
        }
        held.sum = sum;
        for (; n < t.k; ++n) native_step_of<ROWS>(a + n * MR, b + n * nr, held);
        sum = held.sum;
    }
    Mask finite = equals(sum[0][0] - sum[0][0], (V){});
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) finite = both(finite, equals(sum[i][j] - sum[i][j], (V){}));
    if (any(held.unsure) || any(but(equals((V){}, (V){}), finite))) return false;
    held.sum = sum;
    held.put(c, nr, into, row * (int64_t)nr + at, t.k);
    return true;
}

INL float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Bounds of PAIR terms. of_panel() leaves `most` at 0: its caller finds the largest magnitude of a segment.
struct PairBounds {
    float bit, least, most;
};
// Lowest bits are compared as bits minus one, so that the lowest bit of zero is the largest.
INL PairBounds of_panel(const float* b, int64_t terms, VectorRange& range) {
    C32::VU bits = {};
    VectorRange here;
    const auto check = [&](const float* from) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) {
            const C32::V x = load<C32::V>(from + v * C32::L);
            here.check(x);
            const C32::VU u = (C32::VU)x, bit = (C32::VU)(x - (C32::V)(u & (u - 1))) << 1;
            bits = umax(bits, bit - 1);
        }
    };
    check(b);
    if (terms == PAIR) check(b + NV * C32::L);
    range.most = umax(range.most, here.most);
    range.least = umin(range.least, here.least);
    const Largest x = largest_lanes(bits, ~here.least);
    const uint32_t bit = x.a / 2 + 1;
    return {bit > C32::EXP ? __builtin_inff() : float_of(bit), float_of((~x.b + 1) / 2), 0};
}
// Columns that the tile lacks are zero and do not count.
static PairBounds of_columns(const float* b, int64_t terms, int nr, int cols) {
    PairBounds x = {0, __builtin_inff(), 0};
    for (int64_t k = 0; k < terms; ++k)
        for (int j = 0; j < cols; ++j) {
            const float bit = lowest_bit(b[k * nr + j]), size = __builtin_fabsf(b[k * nr + j]);
            x = {bit > x.bit ? bit : x.bit, size < x.least ? size : x.least, size > x.most ? size : x.most};
        }
    return x;
}

static void resize(PanelBounds& x, const void* of, int64_t k) {
    x.of = of;
    x.k = k;
    const size_t n = (size_t)(place_of(k + PAIR - 1) + C32::L);
    for (std::vector<float>* v : {&x.bit, &x.least, &x.most}) v->resize(n);
}

INL void fill_places(float* to, float x) {
    typedef Vec<float, 4 * PLACES>::type Places;
    store(to, x - Places{});
}

// Bounds of a panel of B, times what compares the bounds of A and B with sums; they serve all rows.
//
// A stored bit is at least half of a factor's lowest bit. So a product's lowest bit is at most 4 times the product of two stored bits.
// It is lost in sums x with at least this |x| 2^-24, because ulp(x) is more than |x| 2^-24; hence 2^26.
// A product of at least the last place of a sum changes the sum. This place is at most |x| 2^-23; 2^-22 leaves room for the roundings
// here. In a pair of terms, sums grow by two products, hence the factor 2 of `most`.
static void bounds_of_b(const Tile& t, int nr, bool narrow, PanelBounds& to) {
    resize(to, t.b, t.k);
    for (int64_t first = 0; first < t.k; first += RUN) {
        const int64_t last = first + RUN < t.k ? first + RUN : t.k;
        const float* const b = (const float*)t.b;
        const bool in_lanes = !narrow && t.cols == nr;
        VectorRange range;
        for (int64_t n = first; n < last && !narrow; n += PAIR) {
            const int64_t terms = last - n < PAIR ? last - n : PAIR;
            const PairBounds x = in_lanes ? of_panel(b + n * nr, terms, range) : of_columns(b + n * nr, terms, nr, t.cols);
            const size_t at = (size_t)place_of(n);
            fill_places(to.bit.data() + at, x.bit * 0x1p26f);
            fill_places(to.least.data() + at, x.least * 0x1p22f);
            if (!in_lanes) fill_places(to.most.data() + at, x.most * 2);
        }
        if (in_lanes) {
            const float most = float_of(largest_lanes(range.most, range.most).a / 2) * 2;
            for (int64_t i = place_of(first); i < place_of(last + PAIR - 1); ++i) to.most[(size_t)i] = most;
        }
        if (!(in_lanes ? range.holds() : in_range(b + first * nr, (last - first) * nr)))
            to.bit[(size_t)place_of(first)] = __builtin_nanf("");
    }
}

// Bounds of a panel of A.
struct RowBounds {
    typedef C32::V V;
    typedef C32::VU VU;
    static constexpr int VECTORS = (int)(MR / C32::L);

    INL V magnitude(V x) { return (V)((VU)x & ~C32::SIGN); }
    INL VU bits_of(V x) {
        const VU u = (VU)x;
        return (VU)magnitude(x - (V)(u & (u - 1)));
    }
    // other_rows() exchanges adjacent rows; store_pairs() stores the values of every other row.
#if ISA_NEON
    INL VU other_rows(VU x) { return (VU)vrev64q_u32((uint32x4_t)x); }
    INL void store_pairs(float* to, const VU* x) { vst1q_u32((uint32_t*)to, vuzp1q_u32((uint32x4_t)x[0], (uint32x4_t)x[1])); }
#else
    INL VU other_rows(VU x) { return (VU)_mm256_shuffle_epi32((__m256i)x, 0xB1); }
    INL void store_pairs(float* to, const VU* x) {
        const __m256i even = _mm256_permutevar8x32_epi32((__m256i)x[0], _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        _mm_storeu_si128((__m128i*)to, _mm256_castsi256_si128(even));
    }
#endif

    static void make(const Tile& t, bool narrow, PanelBounds& to) {
        resize(to, t.a, t.k);
        const float* const a = (const float*)t.a;
        alignas(WIDTH) uint32_t padding[MR];  // rows that the tile lacks require nothing
        for (int i = 0; i < MR; ++i) padding[i] = i < t.rows ? 0 : ~0u;
        for (int64_t first = 0; first < t.k; first += RUN) {
            const int64_t last = first + RUN < t.k ? first + RUN : t.k;
            VectorRange range;
            for (int64_t n = first; n + PAIR <= last && !narrow; n += PAIR) of_pair(a + n * MR, padding, to, place_of(n), range);
            for (int i = 0; (last - first) % PAIR && i < MR; i += C32::L) range.check(load<V>(a + (last - 1) * MR + i));
            if (!(narrow ? in_range(a + first * MR, (last - first) * MR) : range.holds()))
                to.bit[(size_t)place_of(first)] = __builtin_nanf("");
        }
    }
    INL void of_pair(const float* a, const uint32_t* padding, PanelBounds& to, int64_t place, VectorRange& range) {
        VU bit[VECTORS], least[VECTORS], most[VECTORS];
#pragma GCC unroll 2
        for (int i = 0; i < VECTORS; ++i) {
            const V x = load<V>(a + i * C32::L), y = load<V>(a + MR + i * C32::L);
            const VU absent = load<VU>(padding + i * C32::L);
            const V small = vmin(magnitude(x), magnitude(y)), large = vmax(magnitude(x), magnitude(y));
            range.check_both(small, large);
            const VU none = (VU)(small == V{}) & C32::EXP;  // a zero's product is exact: its bit is infinite
            bit[i] = umax(umax(bits_of(x), bits_of(y)), none) & ~absent;
            least[i] = (VU)small | (absent & C32::EXP);
            most[i] = (VU)large & ~absent;
            bit[i] = umax(bit[i], other_rows(bit[i]));
            least[i] = umin(least[i], other_rows(least[i]));
            most[i] = umax(most[i], other_rows(most[i]));
        }
        store_pairs(to.bit.data() + place, bit);
        store_pairs(to.least.data() + place, least);
        store_pairs(to.most.data() + place, most);
    }
};

template <int ROWS>
static bool native_rows_of(const Tile& t, int nr, int row, int at, bool narrow, const TileBounds& bounds, const EventTile& into) {
    if (narrow) return native_rows<false, true, ROWS>(t, nr, row, at, bounds, into);
    return at + NV * C32::L <= t.cols ? native_rows<true, true, ROWS>(t, nr, row, at, bounds, into)
                                      : native_rows<true, false, ROWS>(t, nr, row, at, bounds, into);
}
#endif

template <int ROWS> static void count_native_or_fast_rows(const Tile& t, int nr, int row, int at, bool narrow, const TileBounds& bounds,
                                                          const FastCount<C64>& k, const ExactCount& add, const EventTile& into) {
    if (native_rows_of<ROWS>(t, nr, row, at, narrow, bounds, into)) return;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV * C32::L && at + j < t.cols; j += NV * C64::L)
            count_fast_rows<C64, float, TO_NEAREST, false, 1>(t, nr, row + i, at + j, k, add, into);
}

// Adds a tile's terms to the float register. `narrow`: float represents the products.
static void native_tile(const Tile& whole, int nr, bool narrow, const ExactCount& add, const EventTile& into) {
    const FastCount<C64> k = FastCount<C64>::make(*whole.add, into.least, whole.add->hi);
    TileBounds bounds;
#if !ISA_AVX512
    BlockPanels& panels = *into.panels;
    if (panels.b.of != whole.b || panels.b.k != whole.k) bounds_of_b(whole, nr, narrow, panels.b);
    PanelBounds& rows = panels.of_a(whole.a, whole.k);
    if (!rows.of) RowBounds::make(whole, narrow, rows);
#endif
    for (int64_t n = 0; n < whole.k; n += RUN) {
        Tile t = whole;
        t.a = (const float*)whole.a + n * MR;
        t.b = (const float*)whole.b + n * nr;
        t.k = whole.k - n < RUN ? whole.k - n : RUN;
#if ISA_AVX512
        const bool made = bounds.make(t, nr, narrow);
#else
        const bool made = bounds.make(rows, panels.b, n, t.k, narrow);
#endif
        if (!made) {
            count_fast_tile<C64, float, TO_NEAREST, false>(t, nr, add, into);
            continue;
        }
        for (int at = 0; at < t.cols; at += NV * C32::L) {
            int row = 0;
            for (; row + NATIVE_ROWS <= t.rows; row += NATIVE_ROWS)
                count_native_or_fast_rows<NATIVE_ROWS>(t, nr, row, at, narrow, bounds, k, add, into);
            for (; row < t.rows; ++row) count_native_or_fast_rows<1>(t, nr, row, at, narrow, bounds, k, add, into);
        }
    }
}

}  // namespace gemmsim::NS
#endif
