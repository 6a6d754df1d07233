// Tiles to nearest even, computed speculatively from the carrier's nearest sums. tiles.cpp says which steps and kinds use them.
//
// The carrier's nearest sum, rounded to the format, is wrong in three cases only:
//   it was not exact and lies on a midpoint of the format;
//   it is below 2^emin, where the format's last place is another one;
//   it is past the format's end.
// So the sums of a few rows are checked together as they are rounded. The check fails if any sum is on a midpoint (exact steps), below
// 2^emin (zeros too) or past an end (where overflow is possible). These rows then take the step again from the sums before it.
// A product is rounded once from its exact value, so that only its magnitude is checked.
// Under modes (ISA_MODES) products must not underflow in the carrier. A sum is then zero only if it is exactly zero.
#pragma once
#include "tiles/rescaled_tile.h"
#include "tiles/speculate.h"
#include "tiles/directed/round_to_odd.h"
#include "tiles/directed/mode_switch.h"
#include "tiles/nearest/checks.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// The fallback: terms [from, from + n) of ROWS rows without speculation. Steps to odd run under two modes where the direction of rounding
// is a mode of the processor (mode_switch.h).
template <class C, int STEP, Rounding KIND, int ROWS> static __attribute__((noinline)) void exact_segment(const Tile& t, int row,
                                                                                                          int64_t from, int64_t n,
                                                                                                          const Const<C>& mul,
                                                                                                          const Const<C>& add) {
    typedef typename C::T T;
#if ISA_MODES
    if (to_odd(STEP)) return run_in_two_modes<C, STEP, KIND, ROWS>(t, row, from, from + n, mul, add);
#endif
    rows_plain<C, STEP, KIND, ROWS>((const T*)t.a + from * MR + row, (const T*)t.b + from * NV * C::L, (T*)t.c + row * NV * C::L, n, mul,
                                    add);
}

// The type that checks sums or products.
template <class C, Rounding KIND, bool SHORT, bool MIDPOINTS> struct ChecksFor {
    typedef Seen<C, MIDPOINTS, KIND != Rounding::NORMAL, (KIND > Rounding::SUBNORMALS)> type;
};
#if ISA_AVX2
template <bool MIDPOINTS> struct ChecksFor<C32, Rounding::SUBNORMALS, true, MIDPOINTS> {
    typedef SeenRescaled<C32, MIDPOINTS> type;
};
#endif

// What the checks of sums look for. UNSEEN: nothing. MAGNITUDES: small sums and, by kind, sums past the ends. ALL: midpoints as well, where
// steps are to odd.
// Without ALL, the sums that speculation starts from must be values of the format. With UNSEEN, none of them may be -0 or, where the kind
// has small sums, below 2^emin, +0 excepted.
enum Sums : int { UNSEEN = 0, MAGNITUDES = 1, ALL = 2 };
// Speculates on the terms of ROWS rows from `from` on. run() returns where it ended: at the tile's end, or earlier where the checks fail
// often or where the sums do not allow a start.
template <class C, int STEP, Rounding KIND, int SUMS, int ROWS, bool SHORT> struct Speculative {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    static constexpr bool PRODUCTS = STEP == MA_NEAR || STEP == MA_ODD;
    static constexpr int GROUP = ROWS < SPECULATIVE_GROUP ? ROWS : SPECULATIVE_GROUP;  // rows that are checked together
    // The sums need more CPU registers than there are. They stay in the first-level cache; a clobber of memory keeps the compiler from
    // copying them to registers.
    static constexpr bool IN_CACHE = ISA_MODES && !ISA_NEON && !SHORT && ROWS * NV > 8;
    static constexpr bool SMALL = KIND != Rounding::NORMAL, LARGE = KIND > Rounding::SUBNORMALS;
    typedef typename ChecksFor<C, KIND, SHORT, to_odd(STEP) && SUMS == ALL>::type Checked;
    typedef typename ChecksFor<C, KIND, SHORT, false>::type CheckedProducts;  // products need no check for midpoints

    const Tile& t;
    const Const<C>& mul;
    const Const<C>& add;
    const CheckConstants<C> of_sum, of_product;
    const T* __restrict const a;
    const T* __restrict const b;
    T* __restrict const c;
    const int row;
    RegisterBlock<C, IN_CACHE ? 1 : ROWS> s;
    int64_t from, end, found = 0;

    INL_MEMBER Speculative(const Tile& tile, int first, int64_t from_, const Const<C>& m, const Const<C>& r)
        : t(tile), mul(m), add(r), of_sum(r, *tile.add), of_product(m, PRODUCTS ? *tile.mul : *tile.add), a((const T*)tile.a + first),
          b((const T*)tile.b), c((T*)tile.c + first * NV * C::L), row(first), from(from_), end(tile.k) {}

    template <int N, class F> static INL_MEMBER void each(F f) { RegisterBlock<C, N>::each(f); }
    INL_MEMBER V left(int64_t k, int i) const { return splat<C>(a[k * MR + i]); }
    INL_MEMBER V right(int64_t k, int j) const { return load<V>(b + (k * NV + j) * C::L); }
    INL_MEMBER V kept(int i, int j) const { return load<V>(c + (i * NV + j) * C::L); }
    INL_MEMBER void keep(int i, int j, V x) const { store(c + (i * NV + j) * C::L, x); }
    INL_MEMBER V get(int i, int j) const { return IN_CACHE ? kept(i, j) : s[IN_CACHE ? 0 : i][j]; }
    INL_MEMBER void set(int i, int j, V x) {
        if (IN_CACHE) keep(i, j, x);
        else s[IN_CACHE ? 0 : i][j] = x;
    }

    // The fallback for term k of rows [first, first + GROUP). in_register hides from the compiler which operands these are. Else it would
    // share values with the fast step, and keep them for the fallback in every step.
    INL_MEMBER void again(int64_t k, int first, V (&next)[GROUP][NV]) const {
#if ISA_MODES
        if (to_odd(STEP)) return again_by_modes(k, first, next);
#endif
        each<GROUP>([&](int i, int j) __attribute__((always_inline)) {
            next[i][j] = step<C, STEP, KIND>(in_register(left(k, first + i)), right(k, j), get(first + i, j), mul, add, VU{}, VU{});
        });
    }
#if ISA_MODES
    // x rounded, also below 2^emin. Sets `wrong` where that may be wrong: on a midpoint or, with LARGE, past the format's end. Without
    // MIDPOINTS only midpoints below 2^emin count. There, kind FLUSH counts every x but zero.
    template <bool MIDPOINTS> static INL_MEMBER V recompute(V x, const CheckConstants<C>& w, const Const<C>& f, VI& wrong) {
        const VI on = MIDPOINTS ? w.on_midpoint(x) : VI{};
        if (!SMALL) {
            wrong |= on;
            return w.round(x);
        }
        const V r = round_magic<C, true, true>(x, f);
        const VI small = w.below_normal(x);
        wrong |= small ? (KIND == Rounding::FLUSH ? (VI)(x != V{}) : (VI)(((VU)(x - r) & ~C::SIGN) == f.half_quantum)) : on;
        if (LARGE) wrong |= w.beyond(x);
        return r;
    }
    INL_MEMBER V recompute_product(V a, V b, VI& wrong) const {
        const V q = a * b, r = of_product.round_product(a, b, q);
        if (!SMALL) return r;
        const V near = recompute<false>(q, of_product, mul, wrong);
        return of_product.below_normal(q) ? near : r;
    }
    INL_MEMBER void again_by_modes(int64_t k, int first, V (&next)[GROUP][NV]) const {
        VI wrong = {};
        each<GROUP>([&](int i, int j) __attribute__((always_inline)) {
            const V x = in_register(left(k, first + i)), y = right(k, j), s_ = get(first + i, j);
            VI of_sums = {};
            next[i][j] = recompute<SUMS == ALL>(PRODUCTS ? s_ + recompute_product(x, y, wrong) : vfma(x, y, s_), of_sum, add, of_sums);
            if (SUMS) wrong |= of_sums;
        });
        if (none_set(wrong)) return;
        if (!IN_CACHE) each<GROUP>([&](int i, int j) __attribute__((always_inline)) { keep(first + i, j, get(first + i, j)); });
        exact_segment<C, STEP, KIND, GROUP>(t, row + first, k, 1, mul, add);
        each<GROUP>([&](int i, int j) __attribute__((always_inline)) { next[i][j] = kept(first + i, j); });
    }
#endif

    // On AVX2, SHORT applies to every other vector, so that half of the roundings use the multipliers and half the adders.
    static constexpr bool is_short(int j) { return SHORT && (ISA_DIRECTED || j % 2); }
    static INL_MEMBER V far(V x, const CheckConstants<C>& w, int j) {
        return is_short(j) ? w.template far<true>(x) : w.template far<false>(x);
    }
    static INL_MEMBER V near(V x, V far, const CheckConstants<C>& w, int j) {
        return is_short(j) ? w.template near<true>(x, far) : w.template near<false>(x, far);
    }
    static INL_MEMBER V rounded(V x, const CheckConstants<C>& w, int j) { return near(x, far(x, w, j), w, j); }

    INL_MEMBER void group(int64_t k, int first) {
        // With SHORT, `next` has the first half of the roundings until the checks are done, so that fewer registers are in use.
        V sum[GROUP][NV], next[GROUP][NV];
        Checked sums;
        CheckedProducts products;
        each<GROUP>([&](int i, int j) __attribute__((always_inline)) {
            const V x = left(k, first + i), y = right(k, j);
            if (PRODUCTS) {
                const V q = x * y;
                products.check(q, of_product, i + j == 0);
                sum[i][j] = get(first + i, j) + (to_odd(STEP) ? of_product.round_product(x, y, q) : rounded(q, of_product, j));
            } else sum[i][j] = vfma(x, y, get(first + i, j));
            if (SUMS) sums.check(sum[i][j], of_sum, i + j == 0);
            next[i][j] = SHORT ? far(sum[i][j], of_sum, j) : of_sum.round(sum[i][j]);
        });
        if (__builtin_expect((SUMS && sums.found(of_sum)) || (PRODUCTS && products.found(of_product)), 0)) {
            again(k, first, next);
            if (fails_often<4, 32>(++found, k - from)) end = k + 1;
        } else if (SHORT) {
            each<GROUP>([&](int i, int j) __attribute__((always_inline)) { next[i][j] = near(sum[i][j], next[i][j], of_sum, j); });
        }
        each<GROUP>([&](int i, int j) __attribute__((always_inline)) { set(first + i, j, next[i][j]); });
    }

    INL_MEMBER int64_t run() {
        VI unfit = {};
        each<ROWS>([&](int i, int j) __attribute__((always_inline)) {
            const V x = kept(i, j);
            if (!IN_CACHE) set(i, j, x);
            if (SUMS == ALL) return;
            unfit |= (VI)((VU)((VU)x << of_sum.up) != (VU){});
            if (SUMS == UNSEEN) unfit |= (VI)((VU)x == splat_u<C>(C::SIGN));
            if (SUMS == UNSEEN && SMALL) unfit |= of_sum.below_normal(x) & (VI)(x != V{});
        });
        if (SUMS != ALL && !none_set(unfit)) return from;
        int64_t k = from;
        for (; k < end; ++k) {
#pragma GCC unroll 8
            for (int first = 0; first < ROWS; first += GROUP) group(k, first);
            if (IN_CACHE) __asm__ volatile("" ::: "memory");
        }
        if (!IN_CACHE) each<ROWS>([&](int i, int j) __attribute__((always_inline)) { keep(i, j, get(i, j)); });
        return k;
    }
};

template <class C, int STEP, Rounding KIND, int SUMS, int ROWS, bool SHORT>
static __attribute__((noinline)) int64_t rows_speculative(const Tile& t, int row, int64_t from, const Const<C>& mul, const Const<C>& add) {
    Speculative<C, STEP, KIND, SUMS, ROWS, SHORT> rows(t, row, from, mul, add);
    return rows.run();
}

// Speculates on all terms of ROWS rows.
template <class C, int STEP, Rounding KIND, int SUMS, int ROWS, bool SHORT = false>
INL void speculate_rows(const Tile& t, int row, const Const<C>& mul, const Const<C>& add) {
    const auto fast = [&](int64_t k) __attribute__((always_inline)) {
        return rows_speculative<C, STEP, KIND, SUMS, ROWS, SHORT>(t, row, k, mul, add);
    };
    const auto exact = [&](int64_t k, int64_t n)
                           __attribute__((always_inline)) { exact_segment<C, STEP, KIND, ROWS>(t, row, k, n, mul, add); };
    speculate(0, t.k, fast, exact);
}

// Whether eight rows may use SHORT: for all sums on AVX-512, for every other one on AVX2, and there only where panels are rescaled.
template <class C, int STEP, Rounding KIND> constexpr bool short_rounds() {
    if (ISA_DIRECTED) return KIND <= Rounding::SUBNORMALS && STEP == FMA_ODD;
    return sizeof(typename C::T) == 4 && !ISA_NEON && KIND == Rounding::SUBNORMALS;
}
template <class C, Rounding KIND> constexpr bool can_rescale() {
    return sizeof(typename C::T) == 4 && KIND == Rounding::SUBNORMALS && ISA_MODES && !ISA_NEON;
}

template <class C, int STEP, Rounding KIND, int SUMS> INL void speculate_eight(const Tile& t, const Const<C>& mul, const Const<C>& add) {
    if constexpr (short_rounds<C, STEP, KIND>()) {
        constexpr int MOST = sizeof(typename C::T) == 4 ? SHORT_BITS_OF_FLOATS : SHORT_BITS_OF_DOUBLES;
        const bool narrow = t.add->p <= MOST && (STEP < MA_NEAR || t.mul->p <= MOST);
        if (can_rescale<C, KIND>() ? t.scaled_by != 0 : narrow) return speculate_rows<C, STEP, KIND, SUMS, 8, true>(t, 0, mul, add);
    }
    speculate_rows<C, STEP, KIND, SUMS, 8>(t, 0, mul, add);
}

template <class C, int STEP, Rounding KIND, int SUMS> INL void rows_of_speculative(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    if (t.rows == 8) return speculate_eight<C, STEP, KIND, SUMS>(t, mul, add);
    for (int row = 0; row < t.rows; row += 2) {
        if (row + 2 <= t.rows) speculate_rows<C, STEP, KIND, SUMS, 2>(t, row, mul, add);
        else speculate_rows<C, STEP, KIND, SUMS, 1>(t, row, mul, add);
    }
}

template <class C, int STEP, Rounding KIND, int SUMS> static void tile_of_speculative(const Tile& t) {
#if ISA_AVX2 || ISA_AVX512
    if constexpr (sizeof(typename C::T) == 4 && KIND == Rounding::SUBNORMALS)
        if (t.scaled_by) return rows_of_speculative<C, STEP, KIND, SUMS>(RescaledTile(t));
#endif
    rows_of_speculative<C, STEP, KIND, SUMS>(t);
}

// nearest_sums: whether the nearest sum of a rounded product and a value of the format rounds right, on midpoints too. This is lemma A of
// product/bounds.h. one_grid: whether such sums below 2^emin are exact, because products are multiples of the register's quantum.
inline bool nearest_sums(const gemmsim::Cast& mul, const gemmsim::Cast& add, int bits) { return mul.p <= add.p && 2 * add.p <= bits - 1; }
inline bool one_grid(const gemmsim::Cast& mul, const gemmsim::Cast& add) { return mul.emin - mul.p >= add.emin - add.p; }

// Entry point of kinds NORMAL (steps to odd only) to FLUSH.
template <class C, int STEP, Rounding KIND> static void tile_speculative(const Tile& t) {
    if constexpr (STEP >= MA_NEAR && KIND <= Rounding::SUBNORMALS) {
        const bool nearest = STEP == MA_NEAR || nearest_sums(*t.mul, *t.add, C::MB + 1);
        if (nearest && (KIND == Rounding::NORMAL || one_grid(*t.mul, *t.add))) return tile_of_speculative<C, STEP, KIND, UNSEEN>(t);
        if constexpr (STEP == MA_ODD && KIND == Rounding::SUBNORMALS)
            if (nearest) return tile_of_speculative<C, STEP, KIND, MAGNITUDES>(t);
    }
    tile_of_speculative<C, STEP, KIND, ALL>(t);
}

}  // namespace gemmsim::NS
#endif
