// Runs of terms and the sums of their totals in one pass over a tile, where all are rounded by one nearest-even cast: the
// innermost order of compose.h without its walks through memory, or one run that goes on from what the tile holds. Kinds
// NONE, PLAIN and SUB; all but NONE are a wager, as in compensated.h, that no sum comes near the ends of the format.
#pragma once
#include "gemm_kernel.h"

namespace gemmsim { namespace NS {

// A sum of two registers: the carrier's nearest sum, rounded, is right (lemma A of plan.h), and being a multiple of the
// smallest quantum it does not underflow. Its sign stays, since -0 is the sum of two -0.
template <class C, int KIND> INL typename C::V meet(typename C::V x, typename C::V y, const Const<C>& k) {
    const typename C::V s = x + y;
    if (KIND == NONE) return s;
    return (typename C::V)((typename C::VU)round_magic<C, false>(s, k) | ((typename C::VU)s & k.keep_sign));
}

template <class C, int STEP, int KIND, int ROWS> struct Runs {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef V Block[ROWS][NV];
    enum { SIZE = ROWS * NV * C::L };

    const T *a, *b;
    const Const<C>& mul;
    const Const<C>& add;
    V most;
    VI lost;

    int64_t steps;  // between two looks

    INL_MEMBER void term(int64_t k, Block s) const {
        V y[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) y[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V x = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) s[i][j] = step<C, STEP, KIND>(x, y[j], s[i][j], mul, add, (VU){}, (VU){});
        }
    }
    INL_MEMBER void terms(int64_t k, int64_t n, Block s) const {
        for (const int64_t end = k + n; k < end; ++k) term(k, s);
    }
    INL_MEMBER void zero(Block s) const {
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) s[i][j] = V{};
    }

    // `n` terms from place k.
    INL_MEMBER void go_on(int64_t k, int64_t n, Block s) {
        while (KIND != NONE && n > steps) {
            terms(k, steps, s);
            for (int i = 0; i < ROWS; ++i)
                for (int j = 0; j < NV; ++j) look(s[i][j]);
            k += steps;
            n -= steps;
        }
        terms(k, n, s);
    }
    INL_MEMBER void run(int64_t k, int64_t n, Block s) {
        zero(s);
        go_on(k, n, s);
    }

    // 2^H runs of n terms (SINGLE: of one), adjacent pairs added.
    template <int H, bool SINGLE> INL_MEMBER void subtree(int64_t k, int64_t n, Block s) {
        if constexpr (H == 0) {
            zero(s);
            if constexpr (SINGLE) term(k, s);
            else terms(k, n, s);
        } else {
            Block t;
            subtree<H - 1, SINGLE>(k, n, s);
            subtree<H - 1, SINGLE>(k + ((SINGLE ? 1 : n) << (H - 1)), n, t);
            for (int i = 0; i < ROWS; ++i)
                for (int j = 0; j < NV; ++j) s[i][j] = meet<C, KIND>(s[i][j], t[i][j], add);
        }
    }

    INL_MEMBER void look(V s) { lost |= ~(VI)((V)((VU)s & ~C::SIGN) < most); }  // NaN is lost, too

    INL_MEMBER void put(const Block s, T* to) {
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) {
                store(to + (i * NV + j) * C::L, s[i][j]);
                if (KIND != NONE) look(s[i][j]);
            }
    }

    INL_MEMBER void meet_in(T* s, const Block t) {
        Block r;
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) {
                if (KIND != NONE) look(t[i][j]);
                r[i][j] = meet<C, KIND>(load<V>(s + (i * NV + j) * C::L), t[i][j], add);
            }
        put(r, s);
    }

    void one_run(int64_t k, T* c) {
        Block s;
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) {
                s[i][j] = load<V>(c + (i * NV + j) * C::L);
                if (KIND != NONE) look(s[i][j]);
            }
        go_on(0, k, s);
        put(s, c);
    }

    void in_sequence(const Lengths& lengths, T* c) {
        int64_t k = 0;
        memset(c, 0, SIZE * sizeof(T));
        for (int64_t i = 0; i < lengths.count; ++i) {
            Block s;
            run(k, lengths[i], s);
            meet_in(c, s);
            k += lengths[i];
        }
    }

    // compose.h's tree of pairs, in which eight runs at a time stay in registers.
    template <bool EIGHTS> void in_pairs(const Lengths& lengths, T* c) {
        alignas(64) T stack[44][SIZE];
        int height[44], used = 0;
        int64_t k = 0;
        auto join = [&]() __attribute__((always_inline)) {
            Block t;
            --used;
            for (int i = 0; i < ROWS; ++i)
                for (int j = 0; j < NV; ++j) t[i][j] = load<V>(stack[used] + (i * NV + j) * C::L);
            meet_in(stack[used - 1], t);
            ++height[used - 1];
        };
        for (int64_t i = 0; i < lengths.count;) {
            Block s;
            const int64_t n = lengths[i];
            bool eight = false;
            if constexpr (EIGHTS) {
                eight = i + 8 <= lengths.count && lengths[i + 7] == n;
                if (eight && n == 1) subtree<3, true>(k, n, s);
                else if (eight) subtree<3, false>(k, n, s);
            }
            if (!eight) run(k, n, s);
            put(s, stack[used]);
            height[used++] = eight ? 3 : 0;
            k += eight ? 8 * n : n;
            i += eight ? 8 : 1;
            while (used > 1 && height[used - 2] == height[used - 1]) join();
        }
        while (used > 1) join();
        memcpy(c, stack[0], SIZE * sizeof(T));
    }
};

template <class C, int STEP, int KIND> static bool runs_tile(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    typedef typename C::T T;
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    const T* a = (const T*)t.a;
    T* c = (T*)t.c;
    typename C::VI lost = {};
    auto rows = [&](auto count, int row) __attribute__((always_inline)) {
        Runs<C, STEP, KIND, decltype(count)::value> r = {a + row, (const T*)t.b, mul, add, splat<C>((T)plan.wager.most), (typename C::VI){}, plan.wager.steps};
        T* to = c + row * NV * C::L;
        if (plan.shape == RunsPlan::ONE) r.one_run(t.k, to);
        else if (plan.shape == RunsPlan::SEQUENCE) r.in_sequence(lengths, to);
        else if (decltype(count)::value <= 2 && plan.eights) r.template in_pairs<(decltype(count)::value <= 2)>(lengths, to);
        else r.template in_pairs<false>(lengths, to);
        lost |= r.lost;
    };
    struct Many { enum { value = WIDTH == 64 ? 8 : 4 }; };
    struct Two { enum { value = 2 }; };
    struct Single { enum { value = 1 }; };
    int row = 0;
    const bool few = plan.shape == RunsPlan::PAIRS && plan.eights;  // whose trees fill the registers
    while (!few && row + Many::value <= t.rows) rows(Many{}, row), row += Many::value;
    while (row + Two::value <= t.rows) rows(Two{}, row), row += Two::value;
    if (row < t.rows) rows(Single{}, row);
    for (int l = 0; l < C::L; ++l)
        if (lost[l]) return false;
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
