// Kernels that add short segments of terms and combine their partial sums in one pass over a tile. The code calls a segment a run
// and its partial sum a total. choose_runs (kernel_choice_runs.h) chooses these kernels where one nearest-even cast rounds both.
// They compute the innermost order of summation_orders.h without storing each partial sum in memory.
// They also compute a single segment that continues from what the tile contains (RunsPlan::ONE).
//
// Kinds NATIVE, NORMAL, SUBNORMALS and FLUSH have no clamps here. CLAMPED is the whole of FLUSH here, with its clamps. NORMAL, SUBNORMALS and FLUSH are
// speculative, as in compensated.h: they assume that no sum comes near the ends of the format.
//
// DIRECTED (short_runs_modes.cpp) does the same in one other direction and is speculative, too. directed.h rounds its terms.
// Its sums of two registers are truncated (add_totals.h).
//
// Where a processor rounds in one direction by a mode (ISA_MODES), steps to odd change the mode for several segments at a time.
// These segments have one length, and their partial sums fill some kilobytes. Their first terms are rounded products. For each
// further term, all sums are computed under rounding down and then rounded under rounding to nearest (mode_switch.h).
//
// What is checked: up to `steps` terms cannot leave the format, in whatever order they are added. Nor can they move a value out of
// the format that a check found to be small enough. So a partial sum is checked when it contains more than that many terms.
#pragma once
#include "tiles/round_product.h"
#include "tiles/short_runs/add_totals.h"
#include "tiles/directed/mode_switch.h"

#ifndef SHORT_HEIGHT
#define SHORT_HEIGHT (WIDTH == 64 ? 3 : 2)
#endif

namespace gemmsim::NS {

// Whether a segment that continues from the tile's c (RunsPlan::ONE) has a kernel: it has fused steps, of kinds SUBNORMALS and FLUSH only.
// SEQUENCE and PAIRS have kernels for every kind that has the step; FLUSH has fused steps only.
constexpr bool goes_on(int step, RunsRounding kind) {
    return (step == FMA_NEAR || step == FMA_ODD) && (kind == RunsRounding::SUBNORMALS || kind == RunsRounding::FLUSH);
}

// ROWS rows of a tile. MODE is the rounding mode of kind DIRECTED.
template <class C, int STEP, RunsRounding KIND, int ROWS, int MODE> struct Runs {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef V Block[ROWS][NV];
    enum { SIZE = ROWS * NV * C::L, DEEP = 44 };
    // A group of 2^HEIGHT short segments stays in registers until it is one partial sum; this is as many as the registers allow.
    enum { HEIGHT = SHORT_HEIGHT, GROUP = 1 << HEIGHT };
    static constexpr bool TWO_MODES = ISA_MODES && STEP == FMA_ODD && KIND != RunsRounding::DIRECTED && KIND != RunsRounding::NATIVE;
    enum { BATCH = 128 / (ROWS * NV) };  // number of segments computed at a time
    // ALL_SIGNS: sums may underflow or are clamped, so that zeros keep their signs at every rounding.
    static constexpr bool SPECULATES = KIND == RunsRounding::NORMAL || KIND == RunsRounding::SUBNORMALS || KIND == RunsRounding::FLUSH ||
                                       KIND == RunsRounding::DIRECTED,
                          ALL_SIGNS = KIND == RunsRounding::FLUSH || KIND == RunsRounding::CLAMPED || KIND == RunsRounding::DIRECTED;

    const T *a, *b;
    const Const<C>& mul;
    const Const<C>& add;
    V most;
    VI lost;

    int64_t steps;  // number of terms between two checks
    TotalTruncation<C, MODE> truncation;

    // The tree of pairs of summation_orders.h as far as it is built: partial sums of complete subtrees, higher subtrees first.
    struct Pairs {
        alignas(64) T total[DEEP][SIZE];
        int64_t runs = 0, k = 0;  // number of segments so far, and of their terms
    };
    // Number of subtrees that wait to be combined: one for each set bit of the number of segments.
    static int waiting(int64_t runs) { return __builtin_popcountll((unsigned long long)runs); }

    template <bool SIGNS> INL_MEMBER V rounded(V s, const Const<C>& f) const {
        if constexpr (KIND == RunsRounding::FLUSH) return round_flush<C>(s, f);
        else if constexpr (KIND == RunsRounding::CLAMPED) return round_to<C, Rounding::FLUSH>(s, f, VU{});
        else if constexpr (KIND == RunsRounding::SUBNORMALS && !SIGNS) return round_split<C, true, false>(s, f);
        else return round_to<C, rounding_of(KIND)>(s, f, VU{});
    }
    template <bool SIGNS> INL_MEMBER V combined(V x, V y) const {
        if constexpr (KIND == RunsRounding::DIRECTED) return truncation.sum(x, y);
        else return combine_sums<C, KIND, SIGNS>(x, y, add);
    }
    template <bool SIGNS> INL_MEMBER V advance(V x, V y, V s) const {
#if ISA_DIRECTED || ISA_MODES
        if constexpr (KIND == RunsRounding::DIRECTED) return step_directed<C, FMA_ODD, MODE, false>(x, y, s, add, add, VU{}, VU{});
        else
#endif
            return advance_near<SIGNS>(x, y, s);
    }
    template <bool SIGNS> INL_MEMBER V advance_near(V x, V y, V s) const {
        if (STEP == FMA_NEAR) return rounded<SIGNS>(vfma(x, y, s), add);
        if (STEP == FMA_ODD) return rounded<SIGNS>(fma_odd<C>(x, y, s), add);
        const V q = rounded<SIGNS>(STEP == MA_NEAR ? x * y : mul_odd<C>(x, y), mul);
        return rounded<SIGNS>(STEP == MA_NEAR ? s + q : add_odd<C>(s, q), add);
    }
    // The first term of a segment that starts from +0.
    template <bool SIGNS> INL_MEMBER V first(V x, V y) const {
        if constexpr (TWO_MODES) return round_product<C, KIND, (ALL_SIGNS || SIGNS)>(x, y, add);
        else if constexpr (ALL_SIGNS) return advance<true>(x, y, V{});
        else if constexpr (STEP == FMA_ODD && ISA_DIRECTED) return round_product<C, KIND, SIGNS>(x, y, add);
        else if constexpr (STEP == FMA_NEAR && !SIGNS) return rounded<false>(x * y, add);
        else return advance<SIGNS>(x, y, V{});
    }
    // FIRST: the first term of a segment that starts from +0, whatever s contains.
    template <bool FIRST, bool SIGNS> INL_MEMBER void term(int64_t k, Block s) const {
        V y[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) y[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V x = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) s[i][j] = FIRST ? first<SIGNS>(x, y[j]) : advance<SIGNS>(x, y[j], s[i][j]);
        }
    }
    template <bool SIGNS> INL_MEMBER void terms(int64_t k, int64_t n, Block s) const {
        for (const int64_t end = k + n; k < end; ++k) term<false, SIGNS>(k, s);
    }
    template <class F> INL_MEMBER void each(F f) const { RegisterBlock<C, ROWS>::each(f); }
    static bool any(VI x) {
        typename C::I found = 0;
        for (int l = 0; l < C::L; ++l) found |= x[l];
        return found != 0;
    }
    INL_MEMBER void check(V s) { lost |= ~(VI)((V)((VU)s & ~C::SIGN) < most); }  // a NaN is lost, too
    INL_MEMBER void check_block(const Block s) {
        each([&](int i, int j) __attribute__((always_inline)) { check(s[i][j]); });
    }
    INL_MEMBER void put(const Block s, T* to) const {
        each([&](int i, int j) __attribute__((always_inline)) { store(to + (i * NV + j) * C::L, s[i][j]); });
    }
    INL_MEMBER void get(Block s, const T* from) const {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = load<V>(from + (i * NV + j) * C::L); });
    }
    template <bool SIGNS> INL_MEMBER void combine_with(Block s, const T* t) const {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = combined<SIGNS>(load<V>(t + (i * NV + j) * C::L), s[i][j]); });
    }

    // Adds `n` terms from term k on to s.
    template <bool SIGNS> INL_MEMBER void go_on(int64_t k, int64_t n, Block s) {
        for (;;) {  // this form has one copy of the loop over terms
            const int64_t m = SPECULATES && n > steps ? steps : n;
            terms<SIGNS>(k, m, s);
            n -= m;
            if (!SPECULATES || n <= 0) return;
            check_block(s);
            k += m;
        }
    }

    template <bool SIGNS> INL_MEMBER void run(int64_t k, int64_t n, Block s) {
        term<true, SIGNS>(k, s);
        go_on<SIGNS>(k + 1, n - 1, s);
        if (SPECULATES && n > steps) check_block(s);
    }

    // Computes `count` segments from term `at` on; the first has number `first`. `take` receives each sum and its length.
    // Returns the index of the term after them.
    template <bool SIGNS, class F>
    INL_MEMBER int64_t each_run(const Lengths& lengths, int64_t first, int64_t count, int64_t at, F take) {
        Block s;
        if constexpr (TWO_MODES) {
            alignas(64) T totals[BATCH * SIZE];
            for (int64_t i = first; i < first + count;) {
                const int64_t same = lengths.same_until(i), end = same < first + count ? same : first + count;
                const int64_t n = lengths[i], most = BATCH, m = end - i < most ? end - i : most;
                if (n == 1) {  // the segment is a rounded product
                    for (; i < end; ++i, ++at) {
                        term<true, SIGNS>(at, s);
                        take(s, n);
                    }
                    continue;
                }
                totals_of(at, n, m, totals);
                for (int64_t u = 0; u < m; ++u) {
                    get(s, totals + u * SIZE);
                    take(s, n);
                }
                i += m;
                at += m * n;
            }
        } else {
            for (int64_t i = first; i < first + count; ++i) {
                const int64_t n = lengths[i];
                run<SIGNS>(at, n, s);
                at += n;
                take(s, n);
            }
        }
        return at;
    }
#if ISA_MODES
    // Computes the sums of `count` segments of n terms each into `totals`.
    __attribute__((noinline)) void totals_of(int64_t k, int64_t n, int64_t count, T* totals) {
        for (int64_t i = 0; i < count; ++i) {
            Block s;
            term<true, true>(k + i * n, s);
            put(s, totals + i * SIZE);
        }
        for (int64_t u = 1; u < n; ++u) {
            {
                const RoundingState mode(RoundingState::DOWN);
                for (int64_t i = 0; i < count; ++i) {
                    const int64_t at = k + i * n + u;
                    values_of_term<C, FMA_ODD, ROWS>(a + at * MR, b + at * NV * C::L, totals + i * SIZE, totals + i * SIZE);
                }
            }
            round_all(totals, count * SIZE);
            if (SPECULATES && n > steps && ((u + 1) % steps == 0 || u + 1 == n))
                for (int64_t at = 0; at < count * SIZE; at += C::L) check(load<V>(totals + at));
        }
    }
    __attribute__((noinline)) void round_all(T* x, int64_t size) const {
#pragma GCC unroll 4
        for (int64_t at = 0; at < size; at += C::L) store(x + at, rounded<true>(load<V>(x + at), add));
    }
#endif

    // Computes one segment of N terms from the rows `x` and the columns `y` on. `take` receives each vector of sums when it is ready.
    template <int N, class F> INL_MEMBER void short_runs(const T* x, const T* y, F take) const {
        V v[N][NV];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) v[n][j] = in_register(load<V>(y + (n * NV + j) * C::L));
        Block s;
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = first<false>(splat<C>(x[i]), v[0][j]); });
#pragma GCC unroll 4
        for (int n = 1; n < N; ++n)
            each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = advance<false>(splat<C>(x[n * MR + i]), v[n][j], s[i][j]); });
        each([&](int i, int j) __attribute__((always_inline)) { take(i, j, s[i][j]); });
    }
    // Combines 2^H such segments in adjacent pairs. The second segment of a pair is added while it is computed, so that H + 1
    // blocks of registers suffice.
    template <int H, int N> INL_MEMBER void subtree(const T* x, const T* y, bool checks, Block s) {
        if constexpr (H == 0) {
            short_runs<N>(x, y, [&](int i, int j, V t) __attribute__((always_inline)) { s[i][j] = t; });
        } else {
            subtree<H - 1, N>(x, y, checks, s);
            if (KIND == RunsRounding::NATIVE) each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = in_register(s[i][j]); });
            const T *const x2 = x + (N << H) / 2 * MR, *const y2 = y + (N << H) / 2 * NV * C::L;
            if constexpr (H == 1) {
                short_runs<N>(x2, y2, [&](int i, int j, V t) __attribute__((always_inline)) { s[i][j] = combined<false>(s[i][j], t); });
            } else {
                Block t;
                subtree<H - 1, N>(x2, y2, checks, t);
                each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = combined<false>(s[i][j], t[i][j]); });
            }
            if (SPECULATES && checks) check_block(s);
        }
    }

    void one_run(int64_t k, T* c) {
        Block s;
        get(s, c);
        if (SPECULATES) check_block(s);
        go_on<true>(0, k, s);
        if (SPECULATES) check_block(s);
        put(s, c);
    }

    // The running sums are never -0: they start from +0, and a sum of two registers is -0 only if both are.
    void in_sequence(const Lengths& lengths, T* c, bool goes_on) {
        if (!goes_on) memset(c, 0, SIZE * sizeof(T));
        if constexpr (KIND == RunsRounding::NATIVE) {
            for (int64_t i = 0, k = 0; i < lengths.count;) {
                const int64_t n = lengths[i], count = lengths.same_until(i) - i;
                native_runs(k, n, count, c);
                k += n * count;
                i += count;
            }
            return;
        }
        int64_t unseen = 0, left = lengths.count;
        each_run<false>(lengths, 0, lengths.count, 0, [&](Block s, int64_t n) __attribute__((always_inline)) {
            combine_with<false>(s, c);
            put(s, c);
            unseen += n;
            --left;
            if (SPECULATES && (unseen + n > steps || left == 0)) {
                check_block(s);
                unseen = 0;
            }
        });
    }

    // Adds `count` segments of n terms where only the carrier's operations round (kind NATIVE).
    void native_runs(int64_t k, int64_t n, int64_t count, T* c) const {
        if (n == 1) few_terms<1>(k, count, c);
        else if (n == 2) few_terms<2>(k, count, c);
        else if (n == 4) few_terms<4>(k, count, c);
        else if (n % 8 == 0) many_terms<8>(k, n, count, c);
        else many_terms<1>(k, n, count, c);
    }
    template <int N> __attribute__((noinline)) void few_terms(int64_t k, int64_t count, T* c) const {
        const T *x = a + k * MR, *y = b + k * NV * C::L;
        Block s;
        get(s, c);
        for (; count; --count, x += N * MR, y += N * NV * C::L)
            short_runs<N>(x, y, [&](int i, int j, V t) __attribute__((always_inline)) { s[i][j] += t; });
        put(s, c);
    }
    // The same for U terms of a segment at a time; n is a multiple of U.
    template <int U> __attribute__((noinline)) void many_terms(int64_t k, int64_t n, int64_t count, T* c) const {
        for (; count; --count, k += n) {
            Block s;
            term<true, false>(k, s);
#pragma GCC unroll 8
            for (int u = 1; u < U; ++u) term<false, false>(k + u, s);
            for (int64_t i = U; i < n; i += U)
#pragma GCC unroll 8
                for (int u = 0; u < U; ++u) term<false, false>(k + i + u, s);
            combine_with<false>(s, c);
            put(s, c);
        }
    }

    // Adds a subtree of `height`, of segments of n terms, after `before` subtrees of that height. Combines every pair that it completes.
    // Each set bit of `before` is a partial sum that waits; the lowest one is on top. Returns where the next partial sum goes.
    template <bool SIGNS> INL_MEMBER T* join(T* top, int64_t before, Block s, int height, int64_t n) {
        for (; before & 1; before >>= 1) {
            combine_with<SIGNS>(s, top -= SIZE);
            if (SPECULATES && n << ++height > steps) check_block(s);
        }
        put(s, top);
        return top + SIZE;
    }

    // Adds the next `count` segments of the tree.
    __attribute__((noinline)) void feed(Pairs& p, const Lengths& lengths, int64_t count) {
        T* top = p.total[waiting(p.runs)];
        p.k = each_run<true>(lengths, p.runs, count, p.k,
                             [&](Block s, int64_t n) __attribute__((always_inline)) { top = join<true>(top, p.runs++, s, 0, n); });
    }

    // Adds `count` groups of 2^H segments of N terms. Each group stays in registers until it is one partial sum. All rows of the
    // tile, block by block, read the terms of a group while these are in the first-level cache. `p` has one tree for each block.
    template <int H, int N> __attribute__((noinline)) void feed_groups(Pairs* p, int blocks, int64_t count) {
        const bool checks = SPECULATES && N << H > steps;
        const T *x = a + p->k * MR, *y = b + p->k * NV * C::L;
        const int64_t first = p->runs >> H;
        int64_t top = waiting(first);
        for (int64_t before = first; before < first + count; ++before, x += (N << H) * MR, y += (N << H) * NV * C::L) {
            int64_t next = 0;
            for (int block = 0; block < blocks; ++block) {
                Block s;
                subtree<H, N>(x + ROWS * block, y, checks, s);
                next = join<false>(p[block].total[top], before, s, H, N) - p[block].total[0];
            }
            top = next / SIZE;
        }
        for (int block = 0; block < blocks; ++block) {
            p[block].k += count * N << H;
            p[block].runs += count << H;
        }
    }

    __attribute__((noinline)) void finish(const Pairs& p, T* c) {
        Block s;
        int used = waiting(p.runs);
        get(s, p.total[--used]);
        while (used) {
            if (SPECULATES) check_block(s);
            combine_with<true>(s, p.total[--used]);
        }
        if (SPECULATES) check_block(s);
        put(s, c);
    }

    // Finds the signs of zeros among sums in pairs of short segments, which have no signs yet. A sum that is zero is -0 if all its
    // segments are -0, and +0 otherwise. The search ends at the first segment that is not -0.
    // (With ALL_SIGNS, sums have their signs already.)
    void signs_of_zeros(const Lengths& lengths, T* c) const {
        if (ALL_SIGNS) return;
        each([&](int i, int j) __attribute__((always_inline)) {
            T* const to = c + (i * NV + j) * C::L;
            const V s = load<V>(to);
            const VI zero = (VI)(s == (V){});
            VI negative = zero;
            for (int64_t k = 0, n = 0; n < lengths.count && any(negative); ++n) {
                const int64_t end = k + lengths[n];
                V t = first<true>(splat<C>(a[k * MR + i]), load<V>(b + (k * NV + j) * C::L));
                for (++k; k < end; ++k) t = advance<true>(splat<C>(a[k * MR + i]), load<V>(b + (k * NV + j) * C::L), t);
                negative &= (VI)((VU)t == splat_u<C>(C::SIGN));
            }
            store(to, zero ? (V)((VU)negative & C::SIGN) : s);
        });
    }
};

// Computes the rows of a tile, as many at a time as fill the registers.
template <class C, int STEP, RunsRounding KIND, int MODE> struct RunsTile {
    typedef typename C::T T;
    template <int ROWS> using Rows = Runs<C, STEP, KIND, ROWS, MODE>;
    // Where the error of each sum decides its rounding to odd (add_odd without directed instructions), two rows keep the units busy.
    enum {
        ODD = !ISA_DIRECTED && KIND != RunsRounding::DIRECTED && STEP == MA_ODD,
        MANY = WIDTH == 64 || (ISA_NEON && !ODD) ? 8
        : ODD                                    ? 2
                                                 : 4
    };

    const Tile& t;
    const Lengths& lengths;
    const RunsPlan& plan;
    Const<C> mul, add;
    typename C::VI lost;

    template <int ROWS> INL_MEMBER Rows<ROWS> rows(int row) const {
        return {(const T*)t.a + row,
                (const T*)t.b,
                mul,
                add,
                splat<C>((T)plan.speculation.most),
                (typename C::VI){},
                plan.speculation.steps,
                TotalTruncation<C, MODE>(add, t.add->p)};
    }
    T* result(int row) const { return (T*)t.c + row * NV * C::L; }

    template <int ROWS> void walk(int row) {
        Rows<ROWS> r = rows<ROWS>(row);
        if (plan.shape == RunsPlan::SEQUENCE) r.in_sequence(lengths, result(row), plan.goes_on);
        else if (plan.shape == RunsPlan::PAIRS) {
            typename Rows<ROWS>::Pairs p;
            r.feed(p, lengths, lengths.count);
            r.finish(p, result(row));
        } else if constexpr (goes_on(STEP, KIND)) r.one_run(t.k, result(row));
        lost |= r.lost;
    }

    // Computes trees of short segments; two rows fill the registers.
    void short_pairs() {
        typename Rows<2>::Pairs p[(MR + 1) / 2];
        Rows<2> all = rows<2>(0);  // an odd last row is paired with padding: panels have MR rows
        const int blocks = (t.rows + 1) / 2;
        while (p->runs < lengths.count) {
            const int64_t n = lengths[p->runs], groups = (lengths.same_until(p->runs) - p->runs) / Rows<2>::GROUP;
            if (n == 1) groups_of<1>(all, p, blocks, groups);
            else if (n == 2) groups_of<2>(all, p, blocks, groups);
            else if constexpr (KIND == RunsRounding::NATIVE) {
                if (n == 3) groups_of<3>(all, p, blocks, groups);
                else groups_of<4>(all, p, blocks, groups);
            }
            for (int block = 0; block < blocks; ++block) rest(p[block], 2 * block);
        }
        lost |= all.lost;
    }
    template <int N> void groups_of(Rows<2>& all, typename Rows<2>::Pairs* p, int blocks, int64_t groups) {
        all.template feed_groups<Rows<2>::HEIGHT, N>(p, blocks, groups);
    }
    // Adds segments one by one until groups may be possible again, or to the end.
    void rest(typename Rows<2>::Pairs& p, int row) {
        Rows<2> r = rows<2>(row);
        const int64_t left = lengths.count - p.runs;
        r.feed(p, lengths, left < Rows<2>::GROUP ? left : int64_t(Rows<2>::GROUP));
        if (p.runs == lengths.count) {
            r.finish(p, result(row));
            r.signs_of_zeros(lengths, result(row));
        }
        lost |= r.lost;
    }

    void run() {
        if (plan.shape == RunsPlan::PAIRS && plan.eights) return short_pairs();
        int row = 0;
        for (; row + MANY <= t.rows; row += MANY) walk<MANY>(row);
        for (; row + (WIDTH != 64) < t.rows; row += 2)
            // With 64-byte vectors a second row costs nothing. Panels and results have MR rows, so there is always a second one.
            walk<2>(row);
        if (row < t.rows) walk<WIDTH == 64 ? 2 : 1>(row);
    }
};

template <class C, int STEP, RunsRounding KIND, int MODE = RNE> static bool runs_tile(const Tile& t, const Lengths& lengths,
                                                                                      const RunsPlan& plan) {
    RunsTile<C, STEP, KIND, MODE> tile = {t, lengths, plan, Const<C>::make(*t.mul), Const<C>::make(*t.add), {}};
    tile.run();
    for (int l = 0; l < C::L; ++l)
        if (tile.lost[l]) return false;
    return true;
}

}  // namespace gemmsim::NS
