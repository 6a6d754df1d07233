// Steps whose sums end in float lanes. The sum stays in int32 until the conversion, which is that of 32-bit integers. fused_end() says
// which conversions have such an end. Where a step has few products (4 on Volta, 8, 16), its end is most of the work.
//
// Everything is exact, as in matrix_unit.h. A sum below 2^24 is a float. The conversion truncates a larger sum to 24 bits toward zero,
// which does not change a second truncation to fewer bits. To nearest even of few bits, a larger sum is first made odd if it lost
// anything. Where a sum could leave int32, or a scale could leave binary32, it is checked; such rows end in double lanes.
#pragma once
#include "tiles/matrix_unit/matrix_unit.h"

namespace gemmsim::NS {

// What a sum in int32 becomes. IN_DOUBLE: double lanes convert it. TOWARD_ZERO: it is truncated to 24 bits; the caller sets this
// rounding mode where conversions have none of their own. NEAREST: a float, the nearest one if the sum has more bits. SHORT: a
// format of few bits, to nearest even.
enum FusedEnd { IN_DOUBLE, TOWARD_ZERO, NEAREST, SHORT };

// The most parts in int32 that a step may have.
enum { MOST_PARTS = 4 };

// The sum of n products and a register, each truncated `kept` places below the largest exponent, is below this.
INL int64_t fused_bound(int n, int kept) { return (4 * (int64_t)n + 2) << kept; }

INL FusedEnd fused_end(const HardwareModel& m, const FusedOut& out) {
    const int room = terms_in_int32(m.kept);
    if (room == 0 || m.products > room * MOST_PARTS) return IN_DOUBLE;
    if (out.keep >= 0) {
        if (fused_bound(m.products, m.kept) <= (int64_t)1 << 24) return NEAREST;
        return TOWARD_ZERO;
    }
    if (out.binary32) return NEAREST;
    return out.in_floats ? SHORT : IN_DOUBLE;
}

INL C32::V float_of(C32::VI x) { return __builtin_convertvector(x, C32::V); }
#if ISA_AVX512
INL C32::V float_toward_zero(C32::VI x) { return (C32::V)_mm512_cvt_roundepi32_ps((__m512i)x, RM(TO_ZERO)); }
#elif ISA_MODES
INL C32::V float_toward_zero(C32::VI x) { return float_of(x); }
#else
INL C32::V float_toward_zero(C32::VI x) {
    C32::V r;
    for (int i = 0; i < C32::L; ++i) {
        double exact = x[i];
        uint64_t bits;
        memcpy(&bits, &exact, 8);
        bits &= ~0x1FFFFFFFull;
        memcpy(&exact, &bits, 8);
        r[i] = (float)exact;
    }
    return r;
}
#endif
// Converts sums. One of 2^24 or more loses its lowest eight bits, but becomes odd if any of them was set.
INL C32::V float_odd(C32::VI x) {
    const C32::VI low = x & 255, odd = (x - low) | ((C32::VI)(low != 0) & 256), large = (C32::VI)((C32::VU)x + (1u << 24) > 1u << 25);
    return float_of(large ? odd : x);
}

struct FloatStep {
    const HardwareModel& m;
    const FusedOut& out;
    const int emin, least;  // emin of the register; the least field of `top`
    const C32::VU mask;
    StepExponents e;
    Shorts top[MR], odd[MR];  // the largest exponents; with `halves`, those of even and of odd products
    const float *a, *b;
    int count, first = 0;
    int64_t step = 0;  // number of the current step

    FloatStep(const HardwareModel& model, const FusedOut& to, int register_emin, int least_of_top)
        : m(model), out(to), emin(register_emin), least(least_of_top),
          mask(splat_u<C32>(to.keep < 0 ? ~0u : ~((1u << (23 - to.keep)) - 1))) {}
};

// Returns x + y. `left` becomes negative where the sum leaves int32.
INL C32::VI checked_sum(C32::VI x, C32::VI y, C32::VI& left) {
    const C32::VI sum = wrapped_sum(x, y);
    left |= (sum ^ x) & (sum ^ y);
    return sum;
}

INL bool any_negative(C32::VI x) {
#if ISA_AVX512
    return _mm512_movepi32_mask((__m512i)x) != 0;
#elif ISA_AVX2
    return _mm256_movemask_ps((__m256)x) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < C32::L; ++i) any |= x[i];
    return any < 0;
#endif
}

// Below 2^-90 all products are zero.
constexpr int32_t LEAST_PRODUCT = BIASES - 90;
// 2^(places - e) for a biased e, and the reciprocal of a power of two.
INL C32::V power_above(int places, C32::VI e) { return (C32::V)((places + BIASES + C32::BIAS - e) << C32::MB); }
INL C32::V inverse_power(C32::V x) { return (C32::V)((C32::VU)splat_i<C32>(2 * C32::BIAS << C32::MB) - (C32::VU)x); }

// Adds products [begin, end) with this stride (PAIRS: two in four), each times `scale` and truncated, to `total`.
template <int ROWS, bool PAIRS = false>
INL void add_truncated(const FloatStep& x, int row, int begin, int end, int stride, const C32::V (&scale)[ROWS][NV],
                       C32::VI (&total)[ROWS][NV]) {
    typedef C32::V V;
    for (int q = begin; q < end; q = after<PAIRS>(q, stride)) {
        V right[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) right[j] = load<V>(x.b + q * NR32 + j * C32::L);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V one = splat<C32>(x.a[q * MR + row + i]);
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j)
                total[i][j] = wrapped_sum(total[i][j], __builtin_convertvector(one * right[j] * scale[i][j], C32::VI));
        }
    }
}

// Adds all products of a step, in parts that fit int32.
template <int ROWS>
INL void add_parts(const FloatStep& x, int row, const C32::V (&scale)[ROWS][NV], C32::VI (&total)[ROWS][NV], C32::VI& left) {
    const int room = terms_in_int32(x.m.kept);
    for (int begin = 0; begin < x.count; begin += room) {
        C32::VI part[ROWS][NV] = {};
        add_truncated<ROWS>(x, row, begin, begin + room < x.count ? begin + room : x.count, 1, scale, part);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) total[i][j] = checked_sum(total[i][j], part[i][j], left);
    }
}

// Computes one fused step of ROWS rows. HELD: all sums fit int32. PAIRS: the products are first, after<true>(first), ...
// False: a sum did not fit int32, and the registers are unchanged.
template <FusedEnd END, bool HELD, int ROWS, bool PAIRS = false> INL bool fused_rows(const FloatStep& x, int row, float* c) {
    typedef C32::V V;
    typedef C32::VI VI;
    V scale[ROWS][NV];
    VI total[ROWS][NV], left = {};
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
        const VI top[NV] = {widened_low(x.top[row + i]), widened_high(x.top[row + i])};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            const V old = load<V>(c + i * NR32 + j * C32::L);
            // A binary32 register of zero may have the least exponent, because products that are not zero are far above it.
            const VI own = END == SHORT ? aligning_field(old, x.emin) : imax(exponent_field(old), splat_i<C32>(1));
            const VI e = imax(imax(top[j], own + C32::BIAS), splat_i<C32>(LEAST_PRODUCT));
            scale[i][j] = power_above(x.m.kept, e);
            total[i][j] = __builtin_convertvector(old * scale[i][j], VI);
        }
    }
    if (HELD) add_truncated<ROWS, PAIRS>(x, row, x.first, x.count, 1, scale, total);
    else add_parts<ROWS>(x, row, scale, total, left);
    if (!HELD && __builtin_expect(any_negative(left), 0)) return false;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            const V back = inverse_power(scale[i][j]);
            float* const at = c + i * NR32 + j * C32::L;
            if (END == SHORT) {
                const V old = load<V>(at),
                        v = round_to<C32, Rounding::OVERFLOWS>(float_odd(total[i][j]) * back, x.out.in_lanes, C32::VU{}) + (V){};
                store(at, exponent_field(old) == 255 ? old : v);
            } else {
                const V v = END == TOWARD_ZERO ? float_toward_zero(total[i][j]) : float_of(total[i][j]);
                store(at, (V)((C32::VU)v & x.mask) * back);
            }
        }
    return true;
}

// The same step of one row in double lanes, in any rounding mode: where out.keep is not negative, nothing is rounded there.
static __attribute__((noinline)) void fused_row_in_double(const FloatStep& x, int row, float* c) {
    TruncatedSums truncated;
    exponents_of(c, NR32, x.emin, x.m.least, truncated.exponent);
    raise_to(x.top[row], truncated.exponent);
    truncated_sums<1>(x.a + row, x.b, 0, 1, x.count, x.m.kept, &truncated, 0);
    finish_fused<false>(x.m, x.out, truncated, c, NR32);
}

// Computes all steps of a tile. `rows(n, row, c)` computes a step of n rows and returns false where it could not. `one(row, c)` then
// computes the step of each of these rows.
template <class Rows, class One> INL void steps_in_floats(FloatStep& x, const Tile& t, Rows rows, One one) {
    const HardwareModel& m = x.m;
    for (int64_t k = 0; k < t.k; k += m.products, ++x.step) {
        x.count = (int)(t.k - k < m.products ? t.k - k : m.products);
        x.a = (const float*)t.a + k * MR;
        x.b = (const float*)t.b + k * NR32;
        x.e.check(t, m, k, x.count);
        largest_exponents(x.e, t.rows, 0, 1 + m.halves, x.count, x.least, x.top);
        if (m.halves) largest_exponents(x.e, t.rows, 1, 2, x.count, x.least, x.odd);
        int row = 0;
        auto some = [&](auto count) __attribute__((always_inline)) {
            constexpr int ROWS = decltype(count)::value;
            float* const c = (float*)t.c + row * NR32;
            if (!rows(count, row, c))
                for (int i = 0; i < ROWS; ++i) one(row + i, c + i * NR32);
            row += ROWS;
        };
        while (row + FewRows::value <= t.rows) some(FewRows{});
        while (row < t.rows) some(OneRow{});
    }
}

template <FusedEnd END, bool HELD> static __attribute__((noinline)) void fused_steps_held(const Tile& t, const HardwareModel& m,
                                                                                          const FusedOut& out, int emin) {
    FloatStep x(m, out, emin, m.least + BIASES);
    steps_in_floats(
        x, t,
        [&](auto n, int row, float* c) __attribute__((always_inline)) { return fused_rows<END, HELD, decltype(n)::value>(x, row, c); },
        [&](int row, float* c) { fused_row_in_double(x, row, c); });
}
template <FusedEnd END> static void fused_steps(const Tile& t, const HardwareModel& m, const FusedOut& out, int emin) {
    if (fused_bound(m.products, m.kept) <= (int64_t)1 << 31) fused_steps_held<END, true>(t, m, out, emin);
    else fused_steps_held<END, false>(t, m, out, emin);
}

}  // namespace gemmsim::NS
