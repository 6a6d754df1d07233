// Tiles below and beside one another in one call, of plain nearest-even registers of float lanes whose steps are the carrier's own
// fused additions.
//
// A sum is ready after a multiplication, its addition and three more operations: 13 cycles, in which four instructions of ten others
// fit. One tile's rows leave registers for eight sums; three rows of two tiles are twelve. They, a factor, an element of A, what
// sums are multiplied by and one between are all of AVX2's sixteen registers, so that the step is written as the instructions it is.
//
// Where a sum below 2^emin is rounded on another grid, processors say by themselves that there was one: values are multiplied by
// that power of two for which 2^emin is the least normal float, and a smaller sum sets the flags of denormal operands or, where it
// became zero, of underflow. Flags are looked at once in many terms; these are computed again from the sums before them, in half as
// many and at last as values unmultiplied, by the step that knows 2^emin. Zeros set no flag; and none are -0, which the rounding
// here loses: the sums start at +0, nearest sums of it and of others that are not -0 are not -0, and what underflows to it is
// followed carefully to where it ends.
#pragma once
#include <immintrin.h>
#include "tiles/stochastic/random_bits.h"
#include "tiles/nearest/rescaled_tile.h"
#include "tiles/nearest/underflow_flags.h"

namespace gemmsim::NS {

// 's = R(a * b + s)', R by the carrier's own rounding of s * (2^k + 1) (Veltkamp's splitting): any vector of B in memory.
INL void near_step(C32::V& s, C32::V a, const float* b, C32::V factor) {
    C32::V far;
    __asm__ volatile(
        "vfmadd231ps %[b], %[a], %[s]\n\t"
        "vmulps %[factor], %[s], %[far]\n\t"
        "vsubps %[far], %[s], %[s]\n\t"
        "vaddps %[far], %[s], %[s]"
        : [s] "+x"(s), [far] "=&x"(far)
        : [b] "m"(*(const C32::V*)b), [a] "x"(a), [factor] "x"(factor));
}

// The carrier's own register, whose loads would be too many: B is in a register, too.
INL void native_step(C32::V& s, C32::V a, C32::V b) {
    __asm__ volatile("vfmadd231ps %[b], %[a], %[s]" : [s] "+x"(s) : [b] "x"(b), [a] "x"(a));
}

// A tile's registers as they are and what makes them so: the terms of sunk panels.
struct Rescaled {
    const Tile& t;
    const Const<C32> add;
    const C32::V a, b, c, sum;  // multiply what is sunk; `sum` what is not
    Rescaled(const Tile& tile, const Rescaling& rescaling)
        : t(tile), add(Const<C32>::make(*tile.add)), a(splat<C32>(Const<C32>::power(-rescaling.a))), b(splat<C32>(Const<C32>::power(-rescaling.b))),
          c(splat<C32>(Const<C32>::power(-rescaling.a - rescaling.b))), sum(splat<C32>(Const<C32>::power(rescaling.a + rescaling.b))) {}
};

// Where the elements of a row of A begin: rows of several panels.
INL const float* row_of(const Tile& t, int row) { return (const float*)t.a + row / MR * MR * t.k + row % MR; }

// Terms [from, to) of ROWS rows of one panel of B, from their sunk registers, `pitch` elements from row to row.
template <int ROWS>
static __attribute__((noinline)) void recompute_unscaled(const Rescaled& x, const float* const* a, const float* b, float* c, int64_t pitch,
                                                       int64_t from, int64_t to) {
    typedef C32::V V;
    V s[ROWS][NV];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + i * pitch + j * C32::L) * x.c;
    for (int64_t k = from; k < to; ++k) {
        V right[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) right[j] = load<V>(b + (k * NV + j) * C32::L) * x.b;
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V left = splat<C32>(a[i][k * MR]) * x.a;
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) s[i][j] = round_to<C32, SUB>(vfma(left, right[j], s[i][j]), x.add, C32::VU{});
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) store(c + i * pitch + j * C32::L, s[i][j] * x.sum);
}

// ROWS rows of PANELS panels.
template <int ROWS, int PANELS, int KIND> struct MultiTileRows {
    typedef C32::V V;
    static constexpr int L = C32::L, NR = NV * L;
    // Terms of one look: at first, at most, and where a sum was small; so many looks that find nothing double them. What is computed
    // carefully costs so many times as much.
    static constexpr int64_t FIRST = 8, LONGEST = 64, SHORTEST = 4, QUIET_STEPS = 4, EXACT_STEPS_NEEDED = 4, MOST_AGAIN = 64;

    const Rescaled& x;
    const float* a[ROWS];
    const float* const b[2];
    float* const c;
    V s[ROWS][PANELS * NV];

    INL_MEMBER MultiTileRows(const Rescaled& tile, int row)
        : x(tile), b{(const float*)tile.t.b, (const float*)tile.t.b + (PANELS - 1) * tile.t.k * NR},
          c((float*)tile.t.c + row * PANELS * NR) {
        for (int i = 0; i < ROWS; ++i) a[i] = row_of(tile.t, row + i);
    }

    float* at(int i, int j) const { return c + (i * PANELS * NV + j) * L; }
    template <class F> static INL_MEMBER void each(F f) {
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
            for (int j = 0; j < PANELS * NV; ++j) f(i, j);
    }
    INL_MEMBER void get() {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = load<V>(at(i, j)); });
    }
    INL_MEMBER void put() const {
        each([&](int i, int j) __attribute__((always_inline)) { store(at(i, j), s[i][j]); });
    }
    INL_MEMBER void terms(int64_t from, int64_t n) {
        const float* left[ROWS];
        for (int i = 0; i < ROWS; ++i) left[i] = a[i] + from * MR;
        const float *b0 = b[0] + from * NR, *b1 = b[1] + from * NR;
        if constexpr (KIND == NONE) return native_terms(left, b0, b1, n);
        const V factor = in_register(x.add.factor);
        for (int64_t k = 0; k < n; ++k, b0 += NR, b1 += NR) {
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                const V av = splat<C32>(left[i][k * MR]);
#pragma GCC unroll 8
                for (int j = 0; j < PANELS * NV; ++j) near_step(s[i][j], av, (j < NV ? b0 : b1) + j % NV * L, factor);
            }
        }
    }
    // Those of the two factors that are fewer wait in registers for the others.
    INL_MEMBER void native_terms(const float* const* left, const float* b0, const float* b1, int64_t n) {
        constexpr int WIDE = PANELS * NV;
        for (int64_t k = 0; k < n; ++k, b0 += NR, b1 += NR) {
            const auto of_a = [&](int i) __attribute__((always_inline)) { return in_register(splat<C32>(left[i][k * MR])); };
            const auto of_b = [&](int j) __attribute__((always_inline)) { return in_register(load<V>((j < NV ? b0 : b1) + j % NV * L)); };
            V held[ROWS < WIDE ? ROWS : WIDE];
#pragma GCC unroll 8
            for (int i = 0; i < (ROWS < WIDE ? ROWS : WIDE); ++i) held[i] = ROWS < WIDE ? of_a(i) : of_b(i);
#pragma GCC unroll 8
            for (int j = 0; j < (ROWS < WIDE ? WIDE : ROWS); ++j) {
                const V other = ROWS < WIDE ? of_b(j) : of_a(j);
#pragma GCC unroll 8
                for (int i = 0; i < (ROWS < WIDE ? ROWS : WIDE); ++i) native_step(ROWS < WIDE ? s[i][j] : s[j][i], held[i], other);
            }
        }
    }
    static void recompute_exactly(const Rescaled& x, int row, int64_t from, int64_t to) {
        const MultiTileRows rows(x, row);
        for (int p = 0; p < PANELS; ++p) recompute_unscaled<ROWS>(x, rows.a, rows.b[p], rows.at(0, p * NV), PANELS * NR, from, to);
    }
    static bool any_negative_zero(const Rescaled& x, int row) {
        const MultiTileRows rows(x, row);
        C32::VI any = {};
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < PANELS * NV; ++j) any |= (C32::VI)((C32::VU)load<V>(rows.at(i, j)) == splat_u<C32>(C32::SIGN));
        return !none_set(any);
    }

    // Terms [k, k + n), of which none is known to be small; false: one is, and registers are as they were.
    INL_MEMBER bool try_terms(int64_t k, int64_t n) {
        terms(k, n);
        if (__builtin_expect(SmallSums::seen(), 0)) {
            SmallSums::clear();
            get();
            return false;
        }
        put();
        return true;
    }
    INL_MEMBER void run() {
        get();
        terms(0, x.t.k);
        put();
    }
};

// Terms from k to `to`, and further while a sum is -0, a few at a time; where it ends. `care`: how many were computed carefully.
template <int ROWS, int PANELS>
static __attribute__((noinline)) int64_t rows_slowly(const Rescaled& x, int row, int64_t k, int64_t to, int64_t& exact_steps) {
    typedef MultiTileRows<ROWS, PANELS, SUB> Rows;
    Rows rows(x, row);
    rows.get();
    while (k < to) {
        const int64_t n = to - k < Rows::SHORTEST ? to - k : Rows::SHORTEST;
        if (rows.try_terms(k, n)) {
            k += n;
            continue;
        }
        for (int64_t end = k + n; k < end; end = k < x.t.k && Rows::any_negative_zero(x, row) ? k + 1 : k) {
            Rows::recompute_exactly(x, row, k, end);
            exact_steps += end - k;
            k = end;
        }
        SmallSums::clear();
        rows.get();
    }
    return k;
}

// All terms of sunk panels. What was computed again is counted.
template <int ROWS, int PANELS> static __attribute__((noinline)) int64_t rows_checked_at_once(const Rescaled& x, int row) {
    typedef MultiTileRows<ROWS, PANELS, SUB> Rows;
    Rows rows(x, row);
    int64_t n = Rows::FIRST, quiet = 0, again = 0, exact_steps = 0;  // at first every look doubles n
    rows.get();
    SmallSums::clear();
    for (int64_t k = 0; k < x.t.k;) {
        const int64_t left = x.t.k - k, now = left < n ? left : n;
        if (__builtin_expect(rows.try_terms(k, now), 1)) {
            k += now;
            if (--quiet > 0) continue;
            if (n < Rows::LONGEST) n *= 2;
            quiet = again ? Rows::QUIET_STEPS : 0;
        } else {
            again += now;
            k = rows_slowly<ROWS, PANELS>(x, row, k, k + now, exact_steps);
            rows.get();
            n = now / 2 < Rows::SHORTEST ? Rows::SHORTEST : now / 2;
            quiet = Rows::QUIET_STEPS;
            if (again + exact_steps * Rows::EXACT_STEPS_NEEDED > k + Rows::MOST_AGAIN) {  // too much, whatever the rest is like
                Rows::recompute_exactly(x, row, k, x.t.k);
                return again + (exact_steps + x.t.k - k) * Rows::EXACT_STEPS_NEEDED;
            }
        }
    }
    return again + exact_steps * Rows::EXACT_STEPS_NEEDED;
}

template <int ROWS, int PANELS, int KIND> static __attribute__((noinline)) int64_t rows_at_once(const Rescaled& x, int row) {
    if constexpr (KIND == SUB) return rows_checked_at_once<ROWS, PANELS>(x, row);
    MultiTileRows<ROWS, PANELS, KIND> rows(x, row);
    rows.run();
    return 0;
}

// The next of `left` rows: twelve sums where they can be; how many, and `again` what rows_at_once() counts.
template <int PANELS, int KIND> static int some_rows(const Rescaled& x, int row, int left, int64_t& again) {
    if constexpr (PANELS == 1) {
        if (left % 6 == 0 || left == 16 || left == 10) return again += rows_at_once<6, 1, KIND>(x, row), 6;
        return again += rows_at_once<4, 1, KIND>(x, row), 4;
    } else {
        if (left % 3 == 0) return again += rows_at_once<3, 2, KIND>(x, row), 3;
        return again += rows_at_once<2, 2, KIND>(x, row), 2;
    }
}

// False: what was computed again is a third of all.
template <int PANELS, int KIND> static bool tiles_at_once(const Tile& t, int tiles, const Rescaling& rescaling) {
    const Rescaled x(t, rescaling);
    const int rows = tiles * (int)MR;
    const int64_t most = rows / (PANELS == 1 ? 4 : 2) * t.k;
    int64_t again = 0, all = 0;
    for (int row = 0; row < rows; all += t.k) {
        row += some_rows<PANELS, KIND>(x, row, rows - row, again);
        if (3 * again > most) return false;
    }
    if (KIND == SUB && rescaling.a + rescaling.b) times((float*)t.c, rows * PANELS * NV * C32::L, x.c);
    return 3 * again <= all;
}

}  // namespace gemmsim::NS
