// Rescaled registers (rescaled.h) to nearest even.
//
// Few terms can put a sum on a midpoint (midpoint_filter.h). In all other terms a sum is rounded toward zero. Half of the last place is
// then added to its bits, and the rest is truncated.
// In the few terms every sum is checked after the rounding toward zero. A sum that is not on a midpoint is rounded right by the same
// operations. A sum on a midpoint may have been above it, and is computed again from both directed results.
#pragma once
#include "tiles/nearest/rescaled_rows.h"
#include "tiles/speculate.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

// A step of rescaled values that is rounded once, from the exact sum rounded to odd. On AVX2 the processor's mode must be down.
struct FromOdd {
    typedef C32::V V;
    typedef C32::VU VU;
    const VU keep, below_half, dropped;
    explicit FromOdd(const gemmsim::Cast& add)
        : keep(splat_u<C32>(~0u << (C32::MB + 1 - add.p))), below_half(splat_u<C32>((1u << (C32::MB - add.p)) - 1)),
          dropped(splat_u<C32>((uint32_t)(C32::MB + 1 - add.p))) {}
    INL_MEMBER V operator()(V a, V b, V s) const {
        const VU u = (VU)fma_directed<C32, RO>(a, b, s), even = (u >> dropped) & 1;
        return (V)((VU)(u + below_half + even) & keep);
    }
};

template <int ROWS> static __attribute__((noinline)) void rows_from_odd(const Tile& t, int row, int64_t k) {
    const FromOdd rounded(*t.add);
    const float *const a = (const float*)t.a + k * MR + row, *const b = (const float*)t.b + k * NV * C32::L;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            float* const c = (float*)t.c + ((row + i) * NV + j) * C32::L;
            store(c, rounded(in_register(splat<C32>(a[i])), load<C32::V>(b + j * C32::L), load<C32::V>(c)));
        }
}
// Computes term k of ROWS rows, from the sums in the tile's c.
template <int ROWS> static void again_from_odd(const Tile& t, int row, int64_t k) {
#if ISA_MODES
    const RoundingWithin state(RoundingState::DOWN);
#endif
    rows_from_odd<ROWS>(t, row, k);
}

template <int ROWS> static __attribute__((noinline)) void rows_nearest(const Tile& t, int row, const MidpointTerms& fallback) {
    RescaledRows<RNE, ROWS> rows(t, row);
    rows.get();
    for (int64_t k = 0;; ++k) {
        const int64_t next = fallback.from(k);
        rows.terms(next - k);
        k = next;
        rows.put();
        if (k == t.k) return;
        const bool midpoint = rows.checked_term();
        rows.next();
        if (__builtin_expect(midpoint, 0)) {
            again_from_odd<ROWS>(t, row, k);
            rows.get();
        }
    }
}

struct TruncateNearest {
    typedef C32::V V;
    typedef C32::VU VU;
    static constexpr RoundingState::Direction DIRECTION = RoundingState::TO_ZERO;
    static constexpr int ROWS = ISA_DIRECTED ? 8 : 4;
    const Tile& t;
    int64_t again = 0, all = 0, fallback = 0, terms = 0;
    explicit TruncateNearest(const Tile& tile) : t(tile) {}

    bool run() {
        if (t.low_a) {
            const MidpointTerms here(t.low_a, t.low_b, t.k, t.midpoints_from);
            terms += t.k;
            fallback += here.count;
            if (!ISA_DIRECTED || here.count * RARE_MIDPOINTS <= t.k) {
                for (int row = 0; row < (int)MR; row += ROWS) rows_nearest<ROWS>(t, row, here);
                return ISA_DIRECTED || fallback * RARE_MIDPOINTS <= terms + MidpointTerms::MOST;
            }
        }
#if ISA_AVX512
        for (int row = 0; row < (int)MR; row += 4, all += t.k) again += rows_speculative(row);
#endif
        return !fails_often<4, 8>(again, all);
    }
#if ISA_AVX512
    // Four rows in which the sums of all terms are checked. Returns how many steps were computed again.
    __attribute__((noinline)) int64_t rows_speculative(int row) const {
        enum { N = 4 };
        const FromOdd rounded(*t.add);
        RescaledRows<RNE, N> rows(t, row);
        int64_t found = 0;
        rows.get();
        for (int64_t k = 0; k < t.k; ++k, rows.next()) {
            V before[N][NV];
            rows.each([&](int i, int j) __attribute__((always_inline)) { before[i][j] = rows.s[i][j]; });
            if (__builtin_expect(rows.checked_term(), 0)) {
                ++found;
                rows.each([&](int i, int j) __attribute__((always_inline)) {
                    rows.s[i][j] = rounded(in_register(splat<C32>(rows.a[i])), load<V>(rows.b + j * C32::L), before[i][j]);
                });
            }
            rows.each([&](int i, int j) __attribute__((always_inline)) { rows.s[i][j] = in_register(rows.s[i][j]); });
        }
        rows.put();
        return found;
    }
#endif
};

}  // namespace gemmsim::NS
#endif
