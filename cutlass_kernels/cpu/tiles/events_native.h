// Additions to a register that is float itself, rounded to nearest: the processor's own sum is the register's, and only whether it
// lost something has to be found out.
//
// Let L be the lowest bit set in a product. Where L is below the last bit of s and of x = R(s + q), the exact sum has it and x does
// not: the step is inexact, and nothing else has to be looked at. A bound of L for a row and all columns of a tile says so for most
// steps. In the others the error of the sum is computed (Knuth's two sums and the error of the product), which is exact in this range
// of operands.
#pragma once
#include "tiles/events_directed.h"
#include "tiles/events_fast.h"
#include "tiles/split.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

#if ISA_AVX512
typedef BlockBounds TileBounds;
constexpr int NATIVE_ROWS = 4;
template <int ROWS> static bool native_rows_of(const Tile& t, int nr, int row, int, bool, const TileBounds& bounds, const EventTile& into) {
    return directed_rows<ROWS>(t, nr, row, bounds, into);
}
#else
// Terms whose bounds are made at a time, and of which one bound of B's serves all; rows whose sums and counts there are registers for.
constexpr int64_t RUN = 256, TOGETHER = 4;
constexpr int NATIVE_ROWS = 2;

// Between half of the lowest bit set in x and that bit; of 0 infinite. Less of the bits may be set than one: a lower bound, then.
INL float lowest_bit(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u &= u - 1;
    float rest;
    memcpy(&rest, &u, sizeof rest);
    return x == 0 ? __builtin_inff() : __builtin_fabsf(x - rest);
}

// lowest_bit() of each lane.
INL C32::V lowest_bits(C32::V x) {
    const C32::VU u = (C32::VU)x, zero = (C32::VU)(x == (C32::V){});
    return (C32::V)(((C32::VU)(x - (C32::V)(u & (u - 1))) & ~C32::SIGN) | (zero & splat_u<C32>(C32::EXP)));
}

// One term of a row's vector, in full: x = R(s + a * b). `unsure`: where neither is certain.
INL void native_step(C32::V a, C32::V b, C32::V x, C32::V s, C32::VI& swamped, C32::VI& exact, Mask& unsure) {
    typedef C32::V V;
    const V q = a * b, lost = vfms(a, b, q);
    const V sum = s + q, z = sum - s, error = (s - (sum - z)) + (q - z);
    const V moved = x - sum;
    const Mask equal = equals(moved - error, lost);
    swamped = counted(swamped, but(equals(x, s), equal));
    exact = counted(exact, equal);
    unsure = either(unsure, but(equal, equals(moved, (V){})));
}

// The same of a product that float holds.
INL void exact_product_step(C32::V a, C32::V b, C32::V& s, C32::VI& swamped, C32::VI& exact) {
    typedef C32::V V;
    const V q = a * b, x = s + q, z = x - s, error = (s - (x - z)) + (q - z);
    const Mask equal = equals(error, (V){});
    swamped = counted(swamped, but(equals(x, s), equal));
    exact = counted(exact, equal);
    s = x;
}

#if ISA_NEON
INL uint32_t largest_lane(C32::VU x) { return vmaxvq_u32((uint32x4_t)x); }
INL bool all_at_least(C32::VU a, C32::VU b) { return none_set((C32::VI)(a < b)); }
#else
INL uint32_t largest_lane(C32::VU x) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1)));
}
INL bool all_at_least(C32::VU a, C32::VU b) { return _mm256_movemask_ps((__m256)(C32::VI)(umax(a, b) == a)) == 0xFF; }
#endif

// Sums and counts of ROWS rows as a step in full leaves them.
template <int ROWS> struct NativeSums {
    C32::V sum[ROWS][NV];
    C32::VI swamped[ROWS][NV], exact[ROWS][NV];
    Mask unsure;
};

// That step, out of the loop of usual ones, whose sums and counts stay in registers. `a`: of the rows; `b`: of the columns.
template <int ROWS> static __attribute__((noinline)) void native_step_of(const float* a, const float* b, NativeSums<ROWS>& held) {
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            const C32::V x = splat<C32>(a[i]), y = load<C32::V>(b + j * C32::L), s = held.sum[i][j];
            held.sum[i][j] = vfma(x, y, s);
            native_step(x, y, held.sum[i][j], s, held.swamped[i][j], held.exact[i][j], held.unsure);
        }
}

// All terms of ROWS rows and NV vectors of columns from `at` on, FULL: all of them the tile's. False, and nothing is changed: a sum
// became infinite or NaN, or a step is not certain. `bounds` are not looked at where products are exact.
template <bool BOUNDS, bool FULL, int ROWS> static __attribute__((noinline)) bool native_rows(const Tile& t, int nr, int row, int at,
                                                                                              const uint32_t* bounds,
                                                                                              const EventTile& into) {
    typedef C32::V V;
    typedef C32::VI VI;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b + at;
    const uint32_t* const bound = bounds + row;
    float* const c = (float*)t.c + row * nr + at;
    NativeSums<ROWS> held;
    V sum[ROWS][NV];
    VI swamped[ROWS][NV];
    C32::VU padding[NV];  // columns that the tile does not have are large
    if (!FULL)
        for (int j = 0; j < NV; ++j)
            for (int l = 0; l < C32::L; ++l) padding[j][l] = at + j * C32::L + l < t.cols ? 0 : ~0u;
    // Magnitudes are bits without that of the sign, shifted out: no register for a mask.
    const auto smallest = [&](const V(&x)[ROWS][NV]) __attribute__((always_inline)) {
        C32::VU least = {};
#pragma GCC unroll 2
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const C32::VU size = FULL ? (C32::VU)x[i][j] << 1 : (C32::VU)x[i][j] << 1 | padding[j];
                least = i + j ? umin(least, size) : size;
            }
        return least;
    };
    held.unsure = Mask{};
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            sum[i][j] = load<V>(c + i * nr + j * C32::L);
            swamped[i][j] = held.exact[i][j] = VI{};
        }
    const auto highest = [](const uint32_t* x) __attribute__((always_inline)) {
        return ROWS == 1 ? splat_u<C32>(x[0]) : umax(splat_u<C32>(x[0]), splat_u<C32>(x[1]));
    };
    C32::VU before = smallest(sum);
    for (int64_t n = 0; n < t.k; ++n) {
        V bv[NV], x[ROWS][NV];
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + n * nr + j * C32::L);
        if constexpr (!BOUNDS) {
#pragma GCC unroll 2
            for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j)
                    exact_product_step(splat<C32>(a[n * MR + i]), bv[j], sum[i][j], swamped[i][j], held.exact[i][j]);
            continue;
        }
#pragma GCC unroll 2
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) x[i][j] = vfma(splat<C32>(a[n * MR + i]), bv[j], sum[i][j]);
        const C32::VU now = smallest(x);
        const bool usual = all_at_least(umin(now, before), highest(bound + n * MR));
        before = now;
        if (__builtin_expect(!usual, 0)) {
            memcpy(held.sum, sum, sizeof sum);
            memcpy(held.swamped, swamped, sizeof swamped);
            native_step_of<ROWS>(a + n * MR, b + n * nr, held);
            memcpy(sum, held.sum, sizeof sum);
            memcpy(swamped, held.swamped, sizeof swamped);
            continue;
        }
#pragma GCC unroll 2
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                swamped[i][j] = counted(swamped[i][j], equals(x[i][j], sum[i][j]));
                sum[i][j] = x[i][j];
            }
    }
    Mask finite = equals(sum[0][0] - sum[0][0], (V){});
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) finite = both(finite, equals(sum[i][j] - sum[i][j], (V){}));
    if (any(held.unsure) || any(but(equals((V){}, (V){}), finite))) return false;
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; ++i) {
        Lanes<C32> lanes;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) lanes.s[j] = sum[i][j], lanes.swamped[j] = swamped[i][j], lanes.exact[j] = held.exact[i][j];
        store_lanes<C32>(lanes, c + i * nr, into, (row + i) * (int64_t)nr + at, t.k);
    }
    return true;
}

struct TileBounds {
    uint32_t of[RUN * MR];  // of each term and row: sums must be no smaller for an inexact step to be known as one; twice its bits

    // False where a factor is outside of the range.
    bool make(const Tile& t, int nr, bool narrow) {
        const float *a = (const float*)t.a, *b = (const float*)t.b;
        if (narrow || t.cols != nr) {
            if (!in_range(a, t.k * MR) || !in_range(b, t.k * nr)) return false;
            if (narrow) return true;
        }
        VectorRange range;
        for (int64_t n = 0; n < t.k; n += TOGETHER) {
            const int64_t end = n + TOGETHER < t.k ? n + TOGETHER : t.k;
            const float most = t.cols == nr ? of_panel(b + n * nr, (end - n) * nr, range) : of_columns(b + n * nr, end - n, nr, t.cols);
            // lowest_bit() twice, each at least a half; and ulp(x) is more than |x| 2^-24
            const C32::V right = splat<C32>(most * 0x1p26f);
            for (int64_t i = n * MR; i < end * MR; i += C32::L) {
                const C32::V x = load<C32::V>(a + i);
                range.look(x);
                store(of + i, (C32::VU)(lowest_bits(x) * right) << 1);
            }
        }
        return range.holds();
    }

    // The largest lowest_bit() of n numbers: as bits less one, of which that of zero is the largest.
    static INL_MEMBER float of_panel(const float* b, int64_t n, VectorRange& range) {
        C32::VU most = {};
        for (int64_t j = 0; j < n; j += NV * C32::L)
#pragma GCC unroll 2
            for (int v = 0; v < NV; ++v) {
                const C32::V x = load<C32::V>(b + j + v * C32::L);
                range.look(x);
                const C32::VU u = (C32::VU)x, bit = (C32::VU)(x - (C32::V)(u & (u - 1))) << 1;
                most = umax(most, bit - 1);
            }
        const uint32_t bits = largest_lane(most) / 2 + 1;
        float bit;
        memcpy(&bit, &bits, sizeof bit);
        return bits > C32::EXP ? __builtin_inff() : bit;
    }
    static float of_columns(const float* b, int64_t terms, int nr, int cols) {  // columns that the tile does not have are zero
        float most = 0;
        for (int64_t k = 0; k < terms; ++k)
            for (int j = 0; j < cols; ++j) {
                const float bit = lowest_bit(b[k * nr + j]);
                most = bit > most ? bit : most;
            }
        return most;
    }
};

template <int ROWS>
static bool native_rows_of(const Tile& t, int nr, int row, int at, bool narrow, const TileBounds& bounds, const EventTile& into) {
    if (narrow) return native_rows<false, true, ROWS>(t, nr, row, at, bounds.of, into);
    return at + NV * C32::L <= t.cols ? native_rows<true, true, ROWS>(t, nr, row, at, bounds.of, into)
                                      : native_rows<true, false, ROWS>(t, nr, row, at, bounds.of, into);
}
#endif

template <int ROWS> static void native_or_brisk_rows(const Tile& t, int nr, int row, int at, bool narrow, const TileBounds& bounds,
                                                     const Brisk<C64>& k, const Careful& add, const EventTile& into) {
    if (native_rows_of<ROWS>(t, nr, row, at, narrow, bounds, into)) return;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV * C32::L && at + j < t.cols; j += NV * C64::L)
            brisk_rows<C64, float, TO_NEAREST, false, 1>(t, nr, row + i, at + j, k, add, into);
}

// A tile's terms to the float register. `narrow`: float holds the products.
static void native_tile(const Tile& whole, int nr, bool narrow, const Careful& add, const EventTile& into) {
    const Brisk<C64> k = Brisk<C64>::make(*whole.add, into.least, whole.add->hi);
    TileBounds bounds;
    for (int64_t n = 0; n < whole.k; n += RUN) {
        Tile t = whole;
        t.a = (const float*)whole.a + n * MR;
        t.b = (const float*)whole.b + n * nr;
        t.k = whole.k - n < RUN ? whole.k - n : RUN;
        if (!bounds.make(t, nr, narrow)) {
            brisk_tile<C64, float, TO_NEAREST, false>(t, nr, add, into);
            continue;
        }
        for (int at = 0; at < t.cols; at += NV * C32::L) {
            int row = 0;
            for (; row + NATIVE_ROWS <= t.rows; row += NATIVE_ROWS)
                native_or_brisk_rows<NATIVE_ROWS>(t, nr, row, at, narrow, bounds, k, add, into);
            for (; row < t.rows; ++row) native_or_brisk_rows<1>(t, nr, row, at, narrow, bounds, k, add, into);
        }
    }
}

}  // namespace gemmsim::NS
#endif
