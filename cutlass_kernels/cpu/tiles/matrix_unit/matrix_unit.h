// Steps of matrix instructions on a tile (their models: product/hardware_model.h). Products are computed in float lanes, or in double
// lanes where exponents need these. The truncated products are summed in int32. One conversion for each step follows, in double
// lanes; matrix_unit_floats.h has it in float lanes. docs/design/cpu.md explains why every value here is exact.
#pragma once
#include "tiles/matrix_unit/exponents.h"
#include "tiles/gemm_kernel.h"

namespace gemmsim::NS {

enum { D_LANES = C64::L };

#if ISA_AVX512
INL C64::V whole_down(C64::V x) { return (C64::V)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
INL C64::V truncate_vector(C64::V x) { return (C64::V)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
#elif ISA_AVX2
INL C64::V whole_down(C64::V x) { return (C64::V)_mm256_floor_pd((__m256d)x); }
INL C64::V truncate_vector(C64::V x) { return (C64::V)_mm256_round_pd((__m256d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
#elif ISA_NEON
INL C64::V whole_down(C64::V x) { return (C64::V)vrndmq_f64((float64x2_t)x); }
INL C64::V truncate_vector(C64::V x) { return (C64::V)vrndq_f64((float64x2_t)x); }
#else
INL C64::V whole_down(C64::V x) {
    for (int i = 0; i < D_LANES; ++i) x[i] = __builtin_floor(x[i]);
    return x;
}
INL C64::V truncate_vector(C64::V x) {
    for (int i = 0; i < D_LANES; ++i) x[i] = __builtin_trunc(x[i]);
    return x;
}
#endif

INL C64::V wide(const int32_t* p) { return widened(load<HalfInts>(p)); }
INL C64::V wide(const float* p) { return widened(load<HalfFloats>(p)); }
INL C64::VI wide_int(const int32_t* p) { return widened_integers(load<HalfInts>(p)); }
INL C64::V two_to(C64::VI e) { return (C64::V)((e + 1023) << 52); }

// Computes the exponents of registers whose format has the least normal number 2^emin. They are at least `least`.
INL void exponents_of(const float* x, int n, int emin, int least, int32_t* e) {
    for (int i = 0; i < n; i += C32::L) store(e + i, imax(aligning_field(load<C32::V>(x + i), emin) - C32::BIAS, splat_i<C32>(least)));
}

// The exact sums of one step's truncated products, for all elements of a tile.
struct alignas(64) TruncatedSums {
    double sum[MR * NR32];      // in units of 2^(exponent - kept)
    int32_t exponent[MR * NR32];
};

// The number of rows whose scales and sums stay in registers.
struct FewRows {
    enum { value = WIDTH == 64 || ISA_NEON ? 4 : 2 };
};
struct OneRow {
    enum { value = 1 };
};

// Returns how many terms below 4 * 2^kept have a sum that fits int32.
INL int terms_in_int32(int kept) { return kept >= 29 ? 0 : 1 << (29 - kept); }

template <int ROWS> INL void truncated_sums(const float* a, const float* b, int first, int stride, int n, int kept,
                                            TruncatedSums* truncated, int row) {
    typedef C32::V V;
    typedef C32::VI VI;
    V scale[ROWS][NV];
    double* sum = truncated->sum + row * NR32;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            // With an exponent below -90, all products are zero.
            const VI e = imax(load<VI>(truncated->exponent + (row + i) * NR32 + j * C32::L), splat_i<C32>(-90));
            scale[i][j] = (V)((kept + 127 - e) << 23);
        }
    const int room = terms_in_int32(kept) * stride;
    for (int begin = first; begin < n; begin += room) {
        const int end = begin + room < n ? begin + room : n;
        VI total[ROWS][NV] = {};
        for (int q = begin; q < end; q += stride) {
            V y[NV];
            for (int j = 0; j < NV; ++j) y[j] = load<V>(b + q * NR32 + j * C32::L);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                const V x = splat<C32>(a[q * MR + row + i]);
                for (int j = 0; j < NV; ++j) total[i][j] = wrapped_sum(total[i][j], __builtin_convertvector(x * y[j] * scale[i][j], VI));
            }
        }
        alignas(64) int32_t part[ROWS * NR32];
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) store(part + i * NR32 + j * C32::L, total[i][j]);
        for (int at = 0; at < ROWS * NR32; at += D_LANES)
            store(sum + at, (C64::V)((begin == first ? (C64::V){} : load<C64::V>(sum + at)) + wide(part + at)));
    }
    if (first >= n) memset(sum, 0, sizeof(double) * ROWS * NR32);
}

// The same in double lanes, where exponents of products lie between -254 and 254.
template <int ROWS> INL void truncated_sums_wide(const float* a, const float* b, int first, int stride, int n, int kept,
                                                 TruncatedSums* truncated, int row) {
    typedef C64::V V;
    enum { VECTORS = 2 * NV };
    V scale[ROWS][VECTORS], total[ROWS][VECTORS] = {};
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < VECTORS; ++j) scale[i][j] = two_to(kept - wide_int(truncated->exponent + (row + i) * NR32 + j * D_LANES));
    for (int q = first; q < n; q += stride) {
        V y[VECTORS];
        for (int j = 0; j < VECTORS; ++j) y[j] = wide(b + q * NR32 + j * D_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V x = splat<C64>((double)a[q * MR + row + i]);
            for (int j = 0; j < VECTORS; ++j) total[i][j] += truncate_vector(x * y[j] * scale[i][j]);
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < VECTORS; ++j) store(truncated->sum + (row + i) * NR32 + j * D_LANES, total[i][j]);
}

// Raises truncated->exponent to the exponents of products first, first + stride, ... where these are larger, and sums the products.
template <bool WIDE> INL void truncated_products(const float* a, const float* b, const StepExponents& e, int first, int stride, int n,
                                                 int kept, int rows, TruncatedSums* truncated) {
    Shorts top[MR];
    largest_exponents(e, rows, first, stride, n, NO_FIELD, top);
    for (int i = 0; i < rows; ++i) raise_to(top[i], truncated->exponent + i * NR32);
    int row = 0;
    auto some = [&](auto count) __attribute__((always_inline)) {
        constexpr int ROWS = decltype(count)::value;
        if (WIDE) {
            for (int i = 0; i < ROWS; ++i) truncated_sums_wide<1>(a, b, first, stride, n, kept, truncated, row + i);
        } else truncated_sums<ROWS>(a, b, first, stride, n, kept, truncated, row);
        row += ROWS;
    };
    while (row + FewRows::value <= rows) some(FewRows{});
    while (row < rows) some(OneRow{});
}

// Returns the exponent of the register's least normal number: that of binary16, that of a cast's format, or that of binary32.
INL int register_emin(const HardwareModel& m, const Cast& add) { return m.out >= HW_RNE23 ? add.emin : m.out == HW_RNE10 ? -14 : -126; }

// Truncates v toward zero to `keep` fraction bits of the register's format. A value past the largest finite one becomes infinite
// in the conversion to float that follows. The result is never -0.
template <bool WIDE> INL C64::V truncate_to(C64::V v, int keep) {
    typedef C64::V V;
    const V r = (V)((C64::VU)v & ~(((uint64_t)1 << (52 - keep)) - 1));
    if (!WIDE) return r + (V){};  // sums are multiples of 2^-115, so none is subnormal
    const V unit = splat<C64>(Const<C64>::power(126 + keep)), back = splat<C64>(Const<C64>::power(-126 - keep)),
            least = splat<C64>(Const<C64>::power(-126));
    const V small = truncate_vector(v * unit) * back, mag = (V)((C64::VU)v & ~C64::SIGN);
    return (mag < least ? small : r) + (V){};
}

INL C64::VI is_infinite(C64::V x) { return (C64::VI)((C64::VU)((C64::VU)x & ~C64::SIGN) == splat_u<C64>(C64::EXP)); }
INL C64::VI is_special(C64::V x) { return (C64::VI)((C64::VU)((C64::VU)x & splat_u<C64>(C64::EXP)) == splat_u<C64>(C64::EXP)); }

// The most bits of a nearest-even format that may be rounded from a sum that was made odd (float_odd in matrix_unit_floats.h).
// Such a sum has at least two bits more.
enum { BITS_FROM_ODD = 15 };

// The conversion at the end of a fused step. It truncates to `keep` fraction bits of binary32, or it is a cast. `nearest`: the cast
// is to nearest even with subnormals.
struct FusedOut {
    int keep = -1;  // -1: a cast
    bool nearest = false;
    HalfFloats zero = {};  // added at the end: -0 where a value that is rounded to zero keeps its sign
    Const<C64> cast;
    // Conversions to nearest even in float lanes: to binary32 itself, or to a format of few bits far from the ends of binary32.
    // `in_lanes` has the constants of that format.
    bool binary32 = false, by_hardware = false, in_floats = false;
    Const<C32> in_lanes;
};

INL FusedOut fused_out(const HardwareModel& m, const Cast& add) {
    FusedOut o;
    o.keep = m.out == HW_E8M13 ? 13 : m.out == HW_RZ23 ? 23 : -1;
    if (o.keep >= 0) return o;
    Cast to = add;
    if (m.out == HW_CAST_INF) {
        to.over_pos = to.inf_pos;
        to.over_neg = to.inf_neg;
        const bool whole = to.emin == -126 && to.emax == 127 && to.inf_pos > to.hi && to.inf_neg < to.lo && !(to.flags & NO_SUBNORMALS);
        if (to.mode == RTZ && whole) o.keep = to.p - 1;
    }
    if (m.out == HW_RNE23) o.zero = o.zero * -1.0f;
    o.nearest = to.mode == RNE && !(to.flags & NO_SUBNORMALS);
    o.cast = Const<C64>::make(to);
    o.binary32 = o.nearest && to.p == 24 && to.emin == -126 && to.emax == 127;
    o.by_hardware = o.binary32 && __builtin_isinf(to.over_pos) && __builtin_isinf(to.over_neg);
    o.in_floats = o.nearest && to.p <= BITS_FROM_ODD && to.emin >= -64 && to.emax <= 64;
    o.in_lanes = Const<C32>::make(to);
    return o;
}

// Converts `v`, which is exact or was rounded to odd.
template <bool WIDE> INL C64::V converted(C64::V v, const FusedOut& out) {
    if (out.keep >= 0) return truncate_to<WIDE>(v, out.keep);
    if (out.by_hardware) return v + (C64::V){};  // the conversion to binary32 does the rest
    if (out.nearest) return round_to<C64, SPECIAL>(v, out.cast, (C64::VU){}) + (C64::V){};
    return round_to<C64, GENERAL>(v, out.cast, (C64::VU){}) + (C64::V){};
}

// D = OUT(S * 2^(E - F)): the register is truncated like the products and added to their sum. An infinite or NaN register stays.
template <bool WIDE> INL void finish_fused(const HardwareModel& m, const FusedOut& out, const TruncatedSums& truncated, float* c, int n) {
    typedef C64::V V;
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at);
        const C64::VI e = wide_int(truncated.exponent + at);
        V v = load<V>(truncated.sum + at) + truncate_vector(old * two_to(m.kept - e));
        v = converted<WIDE>(v * two_to(e - m.kept), out);
        if (WIDE || out.keep < 0) v = is_special(old) ? old : v;
        store(c + at, __builtin_convertvector(v, HalfFloats) + out.zero);
    }
}

// The total and the register are floored below the larger exponent and added. The sum is floored below its own exponent, and then
// rounded to nearest even.
INL void finish_floored(const HardwareModel& m, const TruncatedSums& truncated, const TruncatedSums* odd, const int32_t* own, float* c,
                        int n) {
    typedef C64::V V;
    typedef C64::VI VI;
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at);
        V total = load<V>(truncated.sum + at);
        VI e = wide_int(truncated.exponent + at);
        if (odd) {
            const VI e1 = wide_int(odd->exponent + at), both = imax(e, e1);
            total = whole_down(total * two_to(e - both)) + whole_down(load<V>(odd->sum + at) * two_to(e1 - both));
            e = both;
        }
        const VI mine = wide_int(own + at), top = imax(mine, e);
        total = whole_down(total * two_to(m.total_bits - m.kept + e - top));
        V addend = whole_down(old * two_to(m.addend_bits - top)) * Const<C64>::power(m.total_bits - m.addend_bits);
        if (m.window >= 0) addend = (VI)(mine < top - m.window) ? (V){} : addend;
        V v = (total + addend) * two_to(top - m.total_bits) + (V){};
        const V own = vmax((V)((C64::VU)v & C64::EXP), splat<C64>(Const<C64>::power(-126)));  // the power of two that begins its binade
        const V last = own * Const<C64>::power(1 - m.total_bits);  // the last place of the sum, which has one bit fewer than the total
        v = whole_down(v / last) * last;
        v = is_infinite(old) ? old : v;
        store(c + at, __builtin_convertvector(v, HalfFloats));
    }
}

INL C32::V flushed(C32::V x, C32::V least, C32::VU keep) {
    const C32::VU u = (C32::VU)x;
    return (C32::VI)((C32::V)(u & ~C32::SIGN) < least) ? (C32::V)(u & keep) : x;
}

// Steps of kind HW_TREE: products plus +0, sums of adjacent pairs, then the register. All are binary32 operations to nearest, and
// subnormals are flushed to zero.
INL void tree_steps(const Tile& t, const HardwareModel& m) {
    typedef C32::V V;
    const float *a = (const float*)t.a, *b = (const float*)t.b;
    float* c = (float*)t.c;
    const V least = splat<C32>(Const<C32>::power(-126)), least_a = splat<C32>(Const<C32>::power(m.a_emin)),
            least_b = splat<C32>(Const<C32>::power(m.b_emin));
    const C32::VU sign = splat_u<C32>(C32::SIGN), none = {};
    auto settle = [&](V x) __attribute__((always_inline)) { return flushed(x, least, sign); };
    auto product = [&](int64_t k, int i, int j) __attribute__((always_inline)) {
        const V x = splat<C32>(k < t.k ? a[k * MR + i] : 0.0f), y = k < t.k ? load<V>(b + k * NR32 + j * C32::L) : (V){};
        return settle(vfma(flushed(x, least_a, none), flushed(y, least_b, none), (V){}));
    };
    for (int i = 0; i < t.rows; ++i)
        for (int j = 0; j < NV; ++j) {
            V s = load<V>(c + i * NR32 + j * C32::L);
            for (int64_t k = 0; k < t.k; k += m.products) {
                V total = settle(product(k, i, j) + product(k + 1, i, j));
                if (m.products == 4) total = settle(total + settle(product(k + 2, i, j) + product(k + 3, i, j)));
                s = settle(flushed(s, least, none) + total);
            }
            store(c + i * NR32 + j * C32::L, s);
        }
}

template <bool WIDE> static void block_steps(const Tile& t, const HardwareModel& m) {
    StepExponents e;
    alignas(64) int32_t own[MR * NR32];
    TruncatedSums truncated, odd;
    const FusedOut out = fused_out(m, *t.add);
    const int emin = register_emin(m, *t.add);
    float* c = (float*)t.c;
    const int n = t.rows * NR32;
    for (int64_t k = 0; k < t.k; k += m.products) {
        const int count = (int)(t.k - k < m.products ? t.k - k : m.products);
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        e.check(t, m, k, count);
        exponents_of(c, n, emin, m.least, own);
        if (m.kind == HW_FUSED) {
            memcpy(truncated.exponent, own, sizeof(int32_t) * (size_t)n);
            truncated_products<WIDE>(a, b, e, 0, 1, count, m.kept, t.rows, &truncated);
            finish_fused<WIDE>(m, out, truncated, c, n);
            continue;
        }
        for (int i = 0; i < n; ++i) truncated.exponent[i] = odd.exponent[i] = LEAST_EXPONENT;
        truncated_products<WIDE>(a, b, e, 0, m.halves ? 2 : 1, count, m.kept, t.rows, &truncated);
        if (m.halves) truncated_products<WIDE>(a, b, e, 1, 2, count, m.kept, t.rows, &odd);
        finish_floored(m, truncated, m.halves ? &odd : nullptr, own, c, n);
    }
}

}  // namespace gemmsim::NS
