// Multi-tile kernels of plain nearest-even registers in float lanes whose steps are the carrier's own fused multiply-adds (AVX2,
// MultiTile::SUMS; kinds NATIVE, NORMAL and SUBNORMALS). One call computes up to three tiles in M and two panels in N.
//
// A sum is ready after a fused multiply-add and three more operations, which take 13 cycles. In that time the processor can issue the four
// instructions of ten other sums. The eight rows of one tile divide into groups of eight sums. Three rows of two panels are twelve sums,
// and so are six rows of one panel. Twelve sums, the factor of the rounding, an element of A and intermediate values take all sixteen
// registers of AVX2. So the step is written in assembly, which keeps the compiler from spilling.
//
// Kind SUBNORMALS: sums below 2^emin are rounded on another grid, and the processor's flags detect them. Values are rescaled by the power of two
// that makes 2^emin the least normal float. A smaller sum then sets the flag of denormal operands or, where it became zero, the flag of
// underflow. The flags are read once in many terms. If one is set, these terms are computed again from the sums before them, a few terms at
// a time. Where that sets a flag again, a step that knows 2^emin computes these few terms from values that are not rescaled.
// Exact zeros set no flag. The rounding here loses the sign of -0, but no sum is -0 unnoticed. Sums start at +0, and the nearest sum of
// addends that are not both -0 becomes -0 by underflow only. The step that knows 2^emin then computes all terms for which a sum is -0.
#pragma once
#include <immintrin.h>
#include "tiles/random_bits.h"
#include "tiles/rescaled_tile.h"
#include "tiles/nearest/underflow_flags.h"

namespace gemmsim::NS {

// s = R(a * b + s) in the carrier's own operations. R is Veltkamp's splitting with g = RN(s * (2^k + 1)). b is a vector in memory.
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

// The step of a register in the carrier's own format. b is in a CPU register as well, since one load for each step would be too many.
INL void native_step(C32::V& s, C32::V a, C32::V b) {
    __asm__ volatile("vfmadd231ps %[b], %[a], %[s]" : [s] "+x"(s) : [b] "x"(b), [a] "x"(a));
}

// A tile of rescaled panels, and the factors of the rescaling.
struct Rescaled {
    const Tile& t;
    const Const<C32> add;
    const C32::V a, b, c, sum;  // a, b and c undo the rescaling of elements of A, of B and of sums; `sum` rescales sums
    Rescaled(const Tile& tile, const Rescaling& rescaling)
        : t(tile), add(Const<C32>::make(*tile.add)), a(splat<C32>(Const<C32>::power(-rescaling.a))),
          b(splat<C32>(Const<C32>::power(-rescaling.b))), c(splat<C32>(Const<C32>::power(-rescaling.a - rescaling.b))),
          sum(splat<C32>(Const<C32>::power(rescaling.a + rescaling.b))) {}
};

// The address of a row's first element of A. `row` counts through several panels.
INL const float* row_of(const Tile& t, int row) { return (const float*)t.a + row / MR * MR * t.k + row % MR; }

// The fallback for terms [from, to) of ROWS rows and one panel of B, by values that are not rescaled. c has the rescaled sums before them,
// `pitch` elements from row to row.
template <int ROWS>
static __attribute__((noinline)) void recompute_unscaled(const Rescaled& x, const float* const* a, const float* b, float* c, int64_t pitch,
                                                         int64_t from, int64_t to) {
    typedef C32::V V;
    RegisterBlock<C32, ROWS> s;
    s.get(c, pitch);
    s.each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = s[i][j] * x.c; });
    for (int64_t k = from; k < to; ++k) {
        V right[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) right[j] = load<V>(b + (k * NV + j) * C32::L) * x.b;
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V left = splat<C32>(a[i][k * MR]) * x.a;
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) s[i][j] = round_to<C32, Rounding::SUBNORMALS>(vfma(left, right[j], s[i][j]), x.add, C32::VU{});
        }
    }
    s.each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = s[i][j] * x.sum; });
    s.put(c, pitch);
}

// The sums of ROWS rows of A and PANELS panels of B.
template <int ROWS, int PANELS, Rounding KIND> struct MultiTileRows {
    typedef C32::V V;
    static constexpr int L = C32::L, NR = NV * L;
    // Terms between two reads of the flags: FIRST, at most LONGEST, and SHORTEST where a sum was small. QUIET_STEPS reads that find nothing
    // double their number. A term of the fallback costs as much as EXACT_STEPS_NEEDED terms. The fallback takes all terms that are left
    // where those computed again cost more than all terms so far plus MOST_AGAIN.
    static constexpr int64_t FIRST = 8, LONGEST = 64, SHORTEST = 4, QUIET_STEPS = 4, EXACT_STEPS_NEEDED = 4, MOST_AGAIN = 64;

    const Rescaled& x;
    const float* a[ROWS];
    const float* const b[2];
    float* const c;
    RegisterBlock<C32, ROWS, PANELS * NV> s;

    INL_MEMBER MultiTileRows(const Rescaled& tile, int row)
        : x(tile), b{(const float*)tile.t.b, (const float*)tile.t.b + (PANELS - 1) * tile.t.k * NR},
          c((float*)tile.t.c + row * PANELS * NR) {
        for (int i = 0; i < ROWS; ++i) a[i] = row_of(tile.t, row + i);
    }

    float* at(int i, int j) const { return c + (i * PANELS * NV + j) * L; }
    INL_MEMBER void get() { s.get(c); }
    INL_MEMBER void put() const { s.put(c); }
    INL_MEMBER void terms(int64_t from, int64_t n) {
        const float* left[ROWS];
        for (int i = 0; i < ROWS; ++i) left[i] = a[i] + from * MR;
        const float *b0 = b[0] + from * NR, *b1 = b[1] + from * NR;
        if constexpr (KIND == Rounding::NATIVE) return native_terms(left, b0, b1, n);
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
    // The operand that has fewer vectors stays in CPU registers. The vectors of the other one are read one after the other.
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

    // Tries terms [k, k + n). Returns false where a sum was small; the sums are then those before these terms.
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

// Computes terms from k to `to` again, a few at a time, and continues past `to` while a sum is -0. Returns the first term that is left.
// Adds the number of terms of the fallback to exact_steps.
template <int ROWS, int PANELS>
static __attribute__((noinline)) int64_t rows_slowly(const Rescaled& x, int row, int64_t k, int64_t to, int64_t& exact_steps) {
    typedef MultiTileRows<ROWS, PANELS, Rounding::SUBNORMALS> Rows;
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

// All terms of rescaled panels. Returns the cost of what was computed again, in terms.
template <int ROWS, int PANELS> static __attribute__((noinline)) int64_t rows_checked_at_once(const Rescaled& x, int row) {
    typedef MultiTileRows<ROWS, PANELS, Rounding::SUBNORMALS> Rows;
    Rows rows(x, row);
    int64_t n = Rows::FIRST, quiet = 0, again = 0, exact_steps = 0;  // at first every read of the flags doubles n
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
            if (again + exact_steps * Rows::EXACT_STEPS_NEEDED > k + Rows::MOST_AGAIN) {  // too many, whatever the remaining terms are like
                Rows::recompute_exactly(x, row, k, x.t.k);
                return again + (exact_steps + x.t.k - k) * Rows::EXACT_STEPS_NEEDED;
            }
        }
    }
    return again + exact_steps * Rows::EXACT_STEPS_NEEDED;
}

template <int ROWS, int PANELS, Rounding KIND> static __attribute__((noinline)) int64_t rows_at_once(const Rescaled& x, int row) {
    if constexpr (KIND == Rounding::SUBNORMALS) return rows_checked_at_once<ROWS, PANELS>(x, row);
    MultiTileRows<ROWS, PANELS, KIND> rows(x, row);
    rows.run();
    return 0;
}

// Computes the next of `left` rows, twelve sums where possible. Returns the number of rows, and adds the result of rows_at_once() to
// `again`.
template <int PANELS, Rounding KIND> static int some_rows(const Rescaled& x, int row, int left, int64_t& again) {
    if constexpr (PANELS == 1) {
        if (left % 6 == 0 || left == 16 || left == 10) return again += rows_at_once<6, 1, KIND>(x, row), 6;
        return again += rows_at_once<4, 1, KIND>(x, row), 4;
    } else {
        if (left % 3 == 0) return again += rows_at_once<3, 2, KIND>(x, row), 3;
        return again += rows_at_once<2, 2, KIND>(x, row), 2;
    }
}

// Returns false where the terms computed again cost more than a third of all.
template <int PANELS, Rounding KIND> static bool tiles_at_once(const Tile& t, int tiles, const Rescaling& rescaling) {
    const Rescaled x(t, rescaling);
    const int rows = tiles * (int)MR;
    const int64_t most = rows / (PANELS == 1 ? 4 : 2) * t.k;
    int64_t again = 0, all = 0;
    for (int row = 0; row < rows; all += t.k) {
        row += some_rows<PANELS, KIND>(x, row, rows - row, again);
        if (3 * again > most) return false;
    }
    if (KIND == Rounding::SUBNORMALS && rescaling.a + rescaling.b) times((float*)t.c, rows * PANELS * NV * C32::L, x.c);
    return 3 * again <= all;
}

}  // namespace gemmsim::NS
