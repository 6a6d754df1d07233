// Counts events at additions of products that float represents, to nearest, in float lanes (CountBy::EXACT_PRODUCTS). Such
// products come from narrow formats, such as bf16 and e4m3.
//
// Let x be the carrier's nearest sum of s and q. It is exact if and only if x - s is q and x - q is s in the carrier. For an inexact
// sum, the difference with the larger addend is exact, and it is not the smaller addend. Where x is exact, its rounding r decides
// everything. Where x is inexact, no number of the format is the exact sum, and r is right unless x is a tie. Steps with a tie, and
// steps at the ends of the format, are computed again in full.
#pragma once
#include "tiles/counting/count_range.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// Adds all terms to ROWS rows and NV vectors of columns from `at` on.
template <int ROWS> static __attribute__((noinline)) void count_exact_products_rows(const Tile& t, int nr, int row, int at,
                                                                                    const FastCount<C32>& k, const ExactCount& add,
                                                                                    const EventTile& into) {
    typedef C32::V V;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b + at;
    float* const c = (float*)t.c + row * nr + at;
    const Range range = Range::make(k.least[0], k.most[0]);
    CountedRows<C32, ROWS> rows;
    rows.get(c, nr);
    for (int64_t n = 0; n < t.k; ++n) {
        V bv[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + n * nr + j * C32::L);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C32>(a[n * MR + i]);
            V r[NV];
            Mask same[NV], equal[NV], rare = {};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const V s = rows.sum[i][j], q = av * bv[j], x = s + q;
                r[j] = k.template round<TO_NEAREST>(x, C32::VU{});
                const Mask held = equals_where(equals(x - s, q), x - q, s);
                equal[j] = equals_where(held, x, r[j]);
                same[j] = equals_where(differs(q, (V){}), r[j], s);
                // A sum of +0 is not rare: it is that of opposite numbers, or of zeros.
                rare = either(rare, either(but(k.ties(x), held), both(some_bit(x), exceeds(range.place(x), range.limit))));
            }
            if (__builtin_expect(any(rare), 0)) {
                Lanes<C32> lanes = rows.row(i);
                const C32::VU none[NV] = {};
                recount<C32, float, TO_NEAREST, false>(lanes, a[n * MR + i], b + n * nr, none, add, into, (row + i) * (int64_t)nr + at);
                rows.set_row(i, lanes);
                continue;
            }
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                rows.sum[i][j] = r[j];
                rows.swamped[i][j] = counted(rows.swamped[i][j], same[j]);
                rows.exact[i][j] = counted(rows.exact[i][j], equal[j]);
            }
        }
    }
    rows.put(c, nr, into, row * (int64_t)nr + at, t.k);
}

// Adds a tile's terms. Products are exact if their factors are far from the carrier's ends. With other factors, double lanes count.
static void count_exact_products_tile(const Tile& t, int nr, const ExactCount& add, const EventTile& into) {
    if (!in_range((const float*)t.a, t.k * MR) || !in_range((const float*)t.b, t.k * nr))
        return count_fast_tile<C64, float, TO_NEAREST, true>(t, nr, add, into);
    const FastCount<C32> k = FastCount<C32>::make(*t.add, into.least, t.add->hi < -t.add->lo ? t.add->hi : -t.add->lo);
    for (int at = 0; at < t.cols; at += NV * C32::L) {
        int row = 0;
        for (; row + 2 <= t.rows; row += 2) count_exact_products_rows<2>(t, nr, row, at, k, add, into);
        if (row < t.rows) count_exact_products_rows<1>(t, nr, row, at, k, add, into);
    }
}

}  // namespace gemmsim::NS
#endif
