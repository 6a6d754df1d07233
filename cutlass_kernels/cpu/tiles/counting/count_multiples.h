// Counts events at additions whose sums are multiples of the register's smallest number and inside its format, in float lanes. They
// come from narrow operands, such as e4m3. Nothing underflows and nothing overflows. The carrier's nearest sum rounds as the exact
// one does (lemma A of bounds.h). Where the carrier loses something, the register becomes the larger addend. The planner proves all
// of this (EventCounter::prove in product/event_counter.h); CountBy::MULTIPLES.
#pragma once
#include "tiles/counting/count_fast.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// Adds all terms to ROWS rows and NV vectors of columns from `at` on. Counts of exact sums are in the low half of a lane, those of
// swamped registers in the high half. LOST: a register may be so small that the carrier's sum with a product is the product.
template <bool LOST, int ROWS> static __attribute__((noinline)) void grid_rows(const Tile& t, int nr, int row, int at,
                                                                               const FastCount<C32>& k, const EventTile& into) {
    typedef C32::V V;
    typedef C32::VI VI;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b + at;
    float* const c = (float*)t.c + row * nr + at;
    const VI exact_one = splat_i<C32>(1), swamped_one = splat_i<C32>(1 << 16);
    RegisterBlock<C32, ROWS> sum;
    VI count[ROWS][NV] = {};
    sum.get(c, nr);
    for (int64_t n = 0; n < t.k; ++n) {
        V bv[NV];
        Mask some[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            bv[j] = load<V>(b + n * nr + j * C32::L);
            some[j] = differs(bv[j], (V){});
        }
        sum.each([&](int i, int j) __attribute__((always_inline)) {
            const V av = splat<C32>(a[n * MR + i]), s = sum[i][j], x = vfma(av, bv[j], s), r = k.template round<TO_NEAREST>(x, C32::VU{});
            const Mask same = equals_where(both(differs(av, (V){}), some[j]), r, s);
            Mask equal = equals(r, x);
            if (LOST) equal = equals_where(equal, vfma(-av, bv[j], x), s);
            count[i][j] = more(more(count[i][j], but(equal, same), exact_one), same, swamped_one);
            sum[i][j] = r;
        });
    }
    CountedRows<C32, ROWS> rows = {sum, {}, {}};
    sum.each([&](int i, int j) __attribute__((always_inline)) {
        rows.swamped[i][j] = count[i][j] >> 16;
        rows.exact[i][j] = count[i][j] & splat_i<C32>(0xFFFF);
    });
    rows.put(c, nr, into, row * (int64_t)nr + at, t.k);
}

template <bool LOST> static void grid_tile_of(const Tile& whole, int nr, const EventTile& into) {
    constexpr int64_t FITS = 1 << 14;  // number of terms whose counts fit half a lane
    constexpr int ROWS = C32::L == 16 ? 4 : 2;
    const FastCount<C32> k = FastCount<C32>::make(*whole.add, into.least, 1);
    for (int64_t n = 0; n < whole.k; n += FITS) {
        Tile t = whole;
        t.a = (const float*)whole.a + n * MR;
        t.b = (const float*)whole.b + n * nr;
        t.k = whole.k - n < FITS ? whole.k - n : FITS;
        for (int at = 0; at < t.cols; at += NV * C32::L) {
            int row = 0;
            for (; row + ROWS <= t.rows; row += ROWS) grid_rows<LOST, ROWS>(t, nr, row, at, k, into);
            for (; row < t.rows; ++row) grid_rows<LOST, 1>(t, nr, row, at, k, into);
        }
    }
}

static void grid_tile(const Tile& t, int nr, const EventTile& into) {
    into.known ? grid_tile_of<false>(t, nr, into) : grid_tile_of<true>(t, nr, into);
}

}  // namespace gemmsim::NS
#endif
