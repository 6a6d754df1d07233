// Counts events at additions to a register that is float itself (count_native.h), where instructions have a direction of their own
// (AVX-512). A sum is exact where the two directed sums are equal. A register that an inexact sum leaves as it was is swamped.
//
// Most blocks of terms need no directed sums. Where no register becomes small, the lowest bit of every product is lost, so that
// every sum is inexact.
#pragma once
#include "tiles/counting/count_range.h"

#if ISA_AVX512
namespace gemmsim::NS {

// BLOCK: number of terms in a block; they are few, because all are added again when one is not as usual. RUN: number of terms in a
// segment; its counts fit halves of a lane.
constexpr int64_t BLOCK = 8, RUN = 256;

// The number with the smaller magnitude of two, and the one with the larger magnitude.
INL C32::V least_magnitude(C32::V a, C32::V b) { return (C32::V)_mm512_range_ps((__m512)a, (__m512)b, 0b1010); }
INL C32::V most_magnitude(C32::V a, C32::V b) { return (C32::V)_mm512_range_ps((__m512)a, (__m512)b, 0b1011); }

// Of successive numbers: the largest lowest bit, or half of it, and the smallest and the largest magnitude, as bits.
struct LowestBits {
    C32::V bit = {};
    C32::VU least = ~(C32::VU){}, most = {};

    INL_MEMBER void check(const float* p) {
        const __m512i u = (__m512i)load<C32::VU>(p), rest = _mm512_and_si512(u, _mm512_sub_epi32(u, _mm512_set1_epi32(1)));
        const C32::VU magnitude = (C32::VU)u & ~C32::SIGN;
        bit = most_magnitude(bit, (C32::V)u - (C32::V)rest);
        least = umin(least, magnitude);
        most = umax(most, magnitude);
    }
    INL_MEMBER bool in_range() const {
        const __m512i low = (__m512i)splat<C32>(LEAST_FACTOR), high = (__m512i)splat<C32>(MOST_FACTOR);
        return !_mm512_cmplt_epu32_mask((__m512i)least, low) && !_mm512_cmpgt_epu32_mask((__m512i)most, high);
    }
};

// Bounds for the blocks of a segment. Where no register of row i and a column j is smaller than of_row[i] * of_column[j], every step
// of the block is inexact.
struct BlockBounds {
    float of_row[RUN / BLOCK][2 * MR];
    C32::V of_column[RUN / BLOCK][NV];
    int64_t blocks;

    // False: a factor is outside of the range. Blocks with zeros are not as usual.
    bool make(const Tile& t, int nr, bool) {
        typedef C32::V V;
        static_assert(NV == 2 && C32::L == 2 * MR && BLOCK % 2 == 0, "a panel's rows are half a vector");
        const float *a = (const float*)t.a, *b = (const float*)t.b;
        blocks = t.cols == NV * C32::L ? t.k / BLOCK : 0;  // columns that the tile lacks are zero
        for (int64_t n = 0; n < blocks; ++n) {
            LowestBits rows, columns[NV];
            for (int64_t k = n * BLOCK; k < (n + 1) * BLOCK; k += 2) {
                rows.check(a + k * MR);
                for (int j = 0; j < 2 * NV; ++j) columns[j % NV].check(b + k * nr + j * C32::L);
            }
            bool usual = rows.in_range();
            for (int j = 0; j < NV; ++j) usual = usual && columns[j].in_range();
            if (!usual && !(in_range(a + n * BLOCK * MR, BLOCK * MR) && in_range(b + n * BLOCK * nr, BLOCK * nr))) return false;
            store(of_row[n], vmax(rows.bit, (V)_mm512_shuffle_f32x4((__m512)rows.bit, (__m512)rows.bit, 0b01001110)));
            // Each bit is at least half of a lowest bit, so a product's lowest bit is at most 4 times their product.
            // ulp(x) is more than |x| 2^-24.
            for (int j = 0; j < NV; ++j) of_column[n][j] = usual ? columns[j].bit * splat<C32>(0x1p26f) : splat<C32>(__builtin_inff());
        }
        const int64_t done = blocks * BLOCK;
        return in_range(a + done * MR, (t.k - done) * MR) && in_range(b + done * nr, (t.k - done) * nr);
    }
};

// The registers of ROWS rows, and their counts. Those of inexact sums are in the low half of a lane, those of swamped registers in
// the high half.
template <int ROWS> struct DirectedRows {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef RegisterBlock<C32, ROWS> Block;
    Block sum;
    VI count[ROWS][NV];

    // Adds one term, whatever it is.
    INL_MEMBER void step(const float* a, const float* b) {
        const __m512i lost_one = _mm512_set1_epi32(1), swamped_one = _mm512_set1_epi32(1 << 16);
        sum.each_product(a, b, [&](int i, int j, V av, V bv) __attribute__((always_inline)) {
            const V s = sum[i][j], x = vfma(av, bv, s);
            const Mask lost = differs(fma_rd(av, bv, s), fma_ru(av, bv, s));
            const __m512i n = _mm512_mask_add_epi32((__m512i)count[i][j], lost, (__m512i)count[i][j], lost_one);
            count[i][j] = (VI)_mm512_mask_add_epi32(n, equals_where(lost, x, s), n, swamped_one);
            sum[i][j] = x;
        });
    }

    // Adds the terms of a block, with every step counted as inexact. False: a step may be exact.
    INL_MEMBER bool block(const float* a, const float* b, int nr, const float* of_row, const V* of_column) {
        const __m512i swamped_one = _mm512_set1_epi32(1 << 16);
        Block least;
        sum.each([&](int i, int j) __attribute__((always_inline)) {  // a register that is zero loses nothing
            const __mmask16 some = _mm512_cmp_ps_mask((__m512)sum[i][j], _mm512_setzero_ps(), _CMP_NEQ_OQ);
            least[i][j] = (V)_mm512_mask_mov_ps(_mm512_set1_ps(__builtin_inff()), some, (__m512)sum[i][j]);
            count[i][j] += splat_i<C32>((int32_t)BLOCK);
        });
#pragma GCC unroll 1
        for (int64_t k = 0; k < BLOCK; ++k)
            sum.each_product(a + k * MR, b + k * nr, [&](int i, int j, V av, V bv) __attribute__((always_inline)) {
                const V s = sum[i][j], x = vfma(av, bv, s);
                least[i][j] = least_magnitude(least[i][j], x);
                const __m512i n = (__m512i)count[i][j];
                count[i][j] = (VI)_mm512_mask_add_epi32(n, equals(x, s), n, swamped_one);
                sum[i][j] = x;
            });
        Mask small = {};
        sum.each([&](int i, int j) __attribute__((always_inline)) {
            small = either(small, not_at_least(least[i][j], splat<C32>(of_row[i]) * of_column[j]));
        });
        return !any(small);
    }

    INL_MEMBER bool finite() const {
        V none = {};
        sum.each([&](int i, int j) __attribute__((always_inline)) { none += sum[i][j] - sum[i][j]; });
        return !any(unordered(none));
    }
};

// Adds all terms of a segment to ROWS rows of a tile. False: a sum became infinite or NaN, and nothing is changed.
template <int ROWS>
static __attribute__((noinline)) bool directed_rows(const Tile& t, int nr, int row, const BlockBounds& bounds, const EventTile& into) {
    const float *a = (const float*)t.a + row, *b = (const float*)t.b;
    float* const c = (float*)t.c + row * nr;
    DirectedRows<ROWS> rows;
    rows.sum.get(c, nr);
    rows.sum.each([&](int i, int j) __attribute__((always_inline)) { rows.count[i][j] = C32::VI{}; });
    int64_t k = 0;
    for (int64_t n = 0; n < bounds.blocks; ++n) {
        const DirectedRows<ROWS> before = rows;
        if (__builtin_expect(!rows.block(a + k * MR, b + k * nr, nr, bounds.of_row[n] + row, bounds.of_column[n]), 0)) {
            rows = before;
            for (int64_t i = 0; i < BLOCK; ++i) rows.step(a + (k + i) * MR, b + (k + i) * nr);
        }
        k += BLOCK;
    }
    for (; k < t.k; ++k) rows.step(a + k * MR, b + k * nr);
    if (!rows.finite()) return false;
    CountedRows<C32, ROWS> counts = {rows.sum, {}, {}};
    rows.sum.each([&](int i, int j) __attribute__((always_inline)) {
        counts.swamped[i][j] = rows.count[i][j] >> 16;
        counts.exact[i][j] = splat_i<C32>((int32_t)t.k) - (rows.count[i][j] & splat_i<C32>(0xFFFF));
    });
    counts.put(c, nr, into, row * (int64_t)nr, t.k);
    return true;
}

}  // namespace gemmsim::NS
#endif
