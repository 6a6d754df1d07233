// Floored steps (CDNA3) whose sums end in float lanes: eight bits below the cut of the products are kept apart from the whole places in
// int32. Below 2^24 whole places both are 32 bits, of which the last is made odd with what it loses; above, what is below is one bit that says
// whether there was anything. The conversion rounds to nearest even, once.
//
// The sum is floored to 31 bits below its own exponent, which takes the last of the eight bits from 2^24 whole places on and one more for
// each power of two. Where the register moves the total down by six places or fewer the last two bits are zero, and larger sums than 2^26,
// of which more is taken, are sums of products that it moves by less: nothing is lost there, and seven bits are all.
#pragma once
#include "tiles/matrix_unit/matrix_unit_floats.h"

namespace gemmsim::NS {

// Bits that a floored total has below the cut of its products; by so many places of eight may be moved without touching the last two.
constexpr int32_t BITS_BELOW = 8, FEW_PLACES = BITS_BELOW - 2;
// Everything is a multiple of 2^-90 (kernel_choice_totals.h), of which nothing is lost 24 places below this exponent: that is as low as scales go.
constexpr int32_t LEAST_FLOORED = BIASES - 80;

// Shifts by amounts of their own.
#if ISA_BASE
enum { SHIFTS_BY_LANE = 0 };
#else
enum { SHIFTS_BY_LANE = 1 };
#endif
// int32 holds twice a sum: eight products below 4 * 2^kept and a register below 2 * 2^kept, or sixteen of 8-bit floats, below 3.6 * 2^kept.
INL bool floored_in_floats(const HardwareModel& m) {
    const bool held = m.kept == 24 && m.products <= (m.halves ? 16 : 8);
    return SHIFTS_BY_LANE && held && m.kept == m.addend_bits && m.total_bits == m.kept + BITS_BELOW;
}

INL C32::VI floor_of(C32::V x) {
#if ISA_AVX512
    return (C32::VI)_mm512_cvt_roundps_epi32((__m512)x, RM(TO_NEG_INF));
#elif ISA_AVX2
    return (C32::VI)_mm256_cvttps_epi32(_mm256_floor_ps((__m256)x));
#elif ISA_NEON
    return (C32::VI)vcvtmq_s32_f32((float32x4_t)x);
#else
    const C32::VI truncated = __builtin_convertvector(x, C32::VI);
    return truncated + (C32::VI)(x < float_of(truncated));
#endif
}

// What ends of steps need, in memory: compilers would make each constant anew for each vector.
struct FlooredEnd {
    typedef C32::V V;
    typedef C32::VI VI;
    const VI one = splat_i<C32>(1), bias = splat_i<C32>(C32::BIAS), least = splat_i<C32>(LEAST_FLOORED), bits = splat_i<C32>(BITS_BELOW),
             mask = splat_i<C32>((1 << BITS_BELOW) - 1), large = splat_i<C32>(1 << 24), coarser = splat_i<C32>((BITS_BELOW - 2) << C32::MB),
             deepest = splat_i<C32>(-31), above_last = splat_i<C32>(~1), above_two = splat_i<C32>(~3), half_mask = splat_i<C32>(127),
             few_places = splat_i<C32>(FEW_PLACES);
    const VI up, down, window;  // what gives 2^(addend_bits - e) and 2^(e - total_bits); how far below the register counts

    explicit FlooredEnd(const HardwareModel& m)
        : up(splat_i<C32>(m.addend_bits + BIASES + C32::BIAS)), down(splat_i<C32>(BIASES + m.total_bits - 1 - C32::BIAS)),
          window(splat_i<C32>(m.window < 0 ? 1024 : m.window)) {
        __asm__ volatile("" : : "r"(this) : "memory");
    }

    // floor(x / 2^n), n not negative.
    INL_MEMBER VI shifted_down(VI x, VI n) const { return x >> -imax(-n, deepest); }

    // Whether -end <= x < end.
    INL_MEMBER VI within(VI x, VI end) const { return (VI)((C32::VU)x + (C32::VU)end < (C32::VU)(end + end)); }

    // `total`, cut products below exponent e (biased), and the register below the larger exponent; to nearest even.
    INL_MEMBER V operator()(VI total, VI e, V old) const {
        const VI own = imax(exponent_field(old), one) + bias, top = imax(imax(own, e), least), below_top = top - e;
        const VI addend = floor_of(old * (V)((up - top) << C32::MB)) & ~(VI)(top - window > own);
        VI whole, last;  // places of the sum, and its bits as far as int32 holds them
        VI few;
        if (__builtin_expect(any_negative(few_places - below_top), 0)) {
            whole = wrapped_sum(shifted_down(total, below_top), addend);
            few = within(whole, large);
            const VI over = bits - below_top, below = shifted_down(total << imax(over, (VI){}), imax(-over, (VI){})) & mask;
            const VI kept = below & (within(whole, large + large) ? above_last : above_two);
            last = few ? wrapped_sum(whole << (BITS_BELOW - 1), below >> 1 | (below & one))
                       : wrapped_sum(whole, whole) | ((VI)(kept != 0) & one);
        } else {
            whole = wrapped_sum(total >> below_top, addend);
            few = within(whole, large);
            const VI below = total << (bits - one - below_top) & half_mask;
            last = few ? wrapped_sum(whole << (BITS_BELOW - 1), below) : wrapped_sum(whole, whole) | ((VI)(below != 0) & one);
        }
        const V sum = float_of(last);
        return sum * (V)(((top - down) << C32::MB) + (~few & coarser));
    }
};

// One floored step of ROWS rows.
template <int ROWS> INL void floored_rows(const FloatStep& x, const FlooredEnd& end, int row, float* c) {
    typedef C32::V V;
    typedef C32::VI VI;
    const bool halves = x.m.halves;
    VI total[2][ROWS][NV] = {}, e[2][ROWS][NV];
    for (int half = 0; half <= halves; ++half) {
        V scale[ROWS][NV];
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const Shorts top = half ? x.odd[row + i] : x.top[row + i];
            e[half][i][0] = widened_low(top);
            e[half][i][1] = widened_high(top);
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) scale[i][j] = power_above(x.m.kept, imax(e[half][i][j], splat_i<C32>(LEAST_PRODUCT)));
        }
        add_truncated<ROWS>(x, row, half, x.count, 1 + halves, scale, total[half]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            VI sum = total[0][i][j], top = e[0][i][j];
            if (halves) {
                top = imax(top, e[1][i][j]);
                sum = wrapped_sum(end.shifted_down(sum, top - e[0][i][j]), end.shifted_down(total[1][i][j], top - e[1][i][j]));
            }
            float* const at = c + i * NR32 + j * C32::L;
            store(at, end(sum, top, load<V>(at)));
        }
}

static __attribute__((noinline)) void floored_steps(const Tile& t, const HardwareModel& m) {
    const FusedOut out = {};
    FloatStep x(m, out, -126, NO_FIELD);
    const FlooredEnd end(m);
    steps_in_floats(
        x, t,
        [&](auto n, int row, float* c) __attribute__((always_inline)) { return floored_rows<decltype(n)::value>(x, end, row, c), true; },
        [](int, float*) {});
}

}  // namespace gemmsim::NS
