// Runs of terms and the sums of their totals in one pass over a tile, where all are rounded by one nearest-even cast: the
// innermost order of compose.h without its walks through memory, or one run that goes on from what the tile holds. Kinds
// NONE, PLAIN and SUB; all but NONE are a wager, as in compensated.h, that no sum comes near the ends of the format.
//
// What needs a look: whatever order they are summed in, `steps` terms cannot leave the format, nor can they move a
// value out of it that was seen to be small. So totals are looked at when more than that many terms are in them.
#pragma once
#include "gemm_kernel.h"
#include "split.h"

namespace gemmsim { namespace NS {

// A sum of two registers: the carrier's nearest sum, rounded, is right (lemma A of plan.h), and being a multiple of the
// smallest quantum it does not underflow. Its sign stays where there is a -0, since -0 is the sum of two -0.
template <class C, int KIND> INL typename C::V meet(typename C::V x, typename C::V y, const Const<C>& f) {
    const typename C::V s = x + y;
    if (KIND == NONE) return s;
    const typename C::V r = round_to<C, PLAIN>(s, f, (typename C::VU){});
    return KIND == SUB ? with_sign(r, s, f) : r;
}

template <class C, int STEP, int KIND, int ROWS> struct Runs {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef V Block[ROWS][NV];
    enum { SIZE = ROWS * NV * C::L, DEEP = 44 };

    const T *a, *b;
    const Const<C>& mul;
    const Const<C>& add;
    V most;
    VI lost;

    int64_t steps;  // between two looks

    // compose.h's tree of pairs as far as it is built: totals of complete subtrees, higher ones first.
    struct Pairs {
        alignas(64) T total[DEEP][SIZE];
        int height[DEEP];
        int used = 0;
        int64_t k = 0;  // of the next term
    };

    INL_MEMBER V advance(V x, V y, V s) const {
        if (STEP == FMA_NEAR) return round_to<C, KIND>(vfma(x, y, s), add, VU{});
        if (STEP == FMA_ODD) return round_to<C, KIND>(fma_odd<C>(x, y, s), add, VU{});
        const V q = round_to<C, KIND>(STEP == MA_NEAR ? x * y : mul_odd<C>(x, y), mul, VU{});
        return round_to<C, KIND>(STEP == MA_NEAR ? s + q : add_odd<C>(s, q), add, VU{});
    }
    INL_MEMBER V first(V x, V y) const {
        if constexpr (STEP == FMA_ODD && ISA_DIRECTED) return round_product<C, KIND>(x, y, add);
        else return advance(x, y, V{});
    }
    // FIRST: of a run from +0, whatever s is.
    template <bool FIRST> INL_MEMBER void term(int64_t k, Block s) const {
        V y[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) y[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V x = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) s[i][j] = FIRST ? first(x, y[j]) : advance(x, y[j], s[i][j]);
        }
    }
    INL_MEMBER void terms(int64_t k, int64_t n, Block s) const {
        for (const int64_t end = k + n; k < end; ++k) term<false>(k, s);
    }
    template <class F> INL_MEMBER void each(F f) const {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) f(i, j);
    }
    INL_MEMBER void look(V s) { lost |= ~(VI)((V)((VU)s & ~C::SIGN) < most); }  // NaN is lost, too
    INL_MEMBER void look_at(const Block s) {
        each([&](int i, int j) __attribute__((always_inline)) { look(s[i][j]); });
    }
    INL_MEMBER void put(const Block s, T* to) const {
        each([&](int i, int j) __attribute__((always_inline)) { store(to + (i * NV + j) * C::L, s[i][j]); });
    }
    INL_MEMBER void get(Block s, const T* from) const {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = load<V>(from + (i * NV + j) * C::L); });
    }
    INL_MEMBER void meet_with(Block s, const T* t) const {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = meet<C, KIND>(load<V>(t + (i * NV + j) * C::L), s[i][j], add); });
    }

    // `n` terms from place k.
    INL_MEMBER void go_on(int64_t k, int64_t n, Block s) {
        while (KIND != NONE && n > steps) {
            terms(k, steps, s);
            look_at(s);
            k += steps;
            n -= steps;
        }
        terms(k, n, s);
    }

    INL_MEMBER void run(int64_t k, int64_t n, Block s) {
        term<true>(k, s);
        go_on(k + 1, n - 1, s);
        if (KIND != NONE && n > steps) look_at(s);
    }

    // 2^H runs of N terms, 1 or 2, adjacent pairs added.
    template <int H, int N> INL_MEMBER void subtree(int64_t k, Block s) const {
        if constexpr (H == 0) {
            term<true>(k, s);
            if constexpr (N == 2) term<false>(k + 1, s);
        } else {
            Block t;
            subtree<H - 1, N>(k, s);
            subtree<H - 1, N>(k + (N << (H - 1)), t);
            each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = meet<C, KIND>(s[i][j], t[i][j], add); });
        }
    }

    void one_run(int64_t k, T* c) {
        Block s;
        get(s, c);
        if (KIND != NONE) look_at(s);
        go_on(0, k, s);
        if (KIND != NONE) look_at(s);
        put(s, c);
    }

    void in_sequence(const Lengths& lengths, T* c) {
        int64_t k = 0, unseen = 0;
        memset(c, 0, SIZE * sizeof(T));
        for (int64_t i = 0; i < lengths.count; ++i) {
            const int64_t n = lengths[i];
            Block s;
            run(k, n, s);
            meet_with(s, c);
            put(s, c);
            k += n;
            unseen += n;
            if (KIND != NONE && (unseen + n > steps || i + 1 == lengths.count)) {
                look_at(s);
                unseen = 0;
            }
        }
    }

    // A subtree of `height` that follows all others, and what it completes.
    INL_MEMBER void join(Pairs& p, Block s, int height, int64_t n) {
        for (; p.used && p.height[p.used - 1] == height; ++height) {
            meet_with(s, p.total[--p.used]);
            if (KIND != NONE && n << (height + 1) > steps) look_at(s);
        }
        put(s, p.total[p.used]);
        p.height[p.used++] = height;
    }

    // Runs [i, end) of the tree. SHORT: none is longer than two terms, and eight at a time stay in registers.
    template <bool SHORT> __attribute__((noinline)) void feed(Pairs& p, const Lengths& lengths, int64_t i, int64_t end) {
        while (i < end) {
            Block s;
            const int64_t n = lengths[i];
            const bool eight = SHORT && i + 8 <= end && lengths[i + 7] == n;
            if constexpr (SHORT) {
                if (eight && n == 1) subtree<3, 1>(p.k, s);
                else if (eight) subtree<3, 2>(p.k, s);
            }
            if (!eight) run(p.k, n, s);
            p.k += eight ? 8 * n : n;
            i += eight ? 8 : 1;
            join(p, s, eight ? 3 : 0, n);
        }
    }

    void finish(Pairs& p, T* c) {
        Block s;
        get(s, p.total[--p.used]);
        while (p.used) {
            if (KIND != NONE) look_at(s);
            meet_with(s, p.total[--p.used]);
        }
        if (KIND != NONE) look_at(s);
        put(s, c);
    }
};

// A tile's rows, as many at a time as fill the registers.
template <class C, int STEP, int KIND> struct RunsTile {
    typedef typename C::T T;
    template <int ROWS> using Rows = Runs<C, STEP, KIND, ROWS>;
    enum { MANY = WIDTH == 64 ? 8 : 4, SLICE = 64 };  // runs of a slice: their terms stay in the first-level cache

    const Tile& t;
    const Lengths& lengths;
    const RunsPlan& plan;
    Const<C> mul, add;
    typename C::VI lost;

    template <int ROWS> INL_MEMBER Rows<ROWS> rows(int row) const {
        return {(const T*)t.a + row, (const T*)t.b, mul, add, splat<C>((T)plan.wager.most), (typename C::VI){}, plan.wager.steps};
    }
    T* result(int row) const { return (T*)t.c + row * NV * C::L; }

    template <int ROWS> void walk(int row) {
        Rows<ROWS> r = rows<ROWS>(row);
        if (plan.shape == RunsPlan::ONE) r.one_run(t.k, result(row));
        else if (plan.shape == RunsPlan::SEQUENCE) r.in_sequence(lengths, result(row));
        else {
            typename Rows<ROWS>::Pairs p;
            r.template feed<false>(p, lengths, 0, lengths.count);
            r.finish(p, result(row));
        }
        lost |= r.lost;
    }

    // Trees of short runs fill the registers with two rows; slice by slice, so that all rows read a slice while it is near.
    void short_pairs() {
        typename Rows<2>::Pairs p[MR / 2 + 1];
        for (int64_t i = 0; i < lengths.count; i += SLICE) {
            const int64_t end = i + SLICE < lengths.count ? i + SLICE : lengths.count;
            for (int row = 0; row < t.rows; row += 2) {
                Rows<2> r = rows<2>(row);  // an odd last row: panels have MR rows
                r.template feed<true>(p[row / 2], lengths, i, end);
                if (end == lengths.count) r.finish(p[row / 2], result(row));
                lost |= r.lost;
            }
        }
    }

    void run() {
        if (plan.shape == RunsPlan::PAIRS && plan.eights) return short_pairs();
        int row = 0;
        for (; row + MANY <= t.rows; row += MANY) walk<MANY>(row);
        for (; row + 2 <= t.rows; row += 2) walk<2>(row);
        if (row < t.rows) walk<1>(row);
    }
};

template <class C, int STEP, int KIND> static bool runs_tile(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    RunsTile<C, STEP, KIND> tile = {t, lengths, plan, Const<C>::make(*t.mul), Const<C>::make(*t.add), {}};
    tile.run();
    for (int l = 0; l < C::L; ++l)
        if (tile.lost[l]) return false;
    return true;
}

template <class C, int KIND> static bool runs_kind(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    if (plan.step == FMA_NEAR) return runs_tile<C, FMA_NEAR, KIND>(t, lengths, plan);
    if (plan.step == FMA_ODD) return runs_tile<C, FMA_ODD, KIND>(t, lengths, plan);
    if (plan.step == MA_NEAR) return runs_tile<C, MA_NEAR, KIND>(t, lengths, plan);
    return runs_tile<C, MA_ODD, KIND>(t, lengths, plan);
}

template <class C> static bool runs_of(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    if (plan.kind == NONE) return plan.step == FMA_NEAR ? runs_tile<C, FMA_NEAR, NONE>(t, lengths, plan) : runs_tile<C, MA_NEAR, NONE>(t, lengths, plan);
    return plan.kind == PLAIN ? runs_kind<C, PLAIN>(t, lengths, plan) : runs_kind<C, SUB>(t, lengths, plan);
}

}}  // namespace gemmsim::NS
