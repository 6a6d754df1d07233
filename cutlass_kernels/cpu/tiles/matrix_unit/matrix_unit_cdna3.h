// Floored steps (HW_FLOORED, on CDNA3) whose sums end in float lanes. Eight bits below the truncation of the products are separate
// from the whole places, which are in int32. Below 2^24 whole places, both together have 32 bits. They lose the last bit, and the
// new last bit is made odd where a set bit was lost. From 2^24 whole places on, the bits below become one bit that says whether
// any of them is set. The conversion rounds to nearest even, once.
//
// The sum is floored to 31 bits below its own exponent. From 2^24 whole places on, this removes the last of the eight bits, and one
// bit more for each further power of two. Where the register moves the total down by six places or fewer, the last two bits are zero.
// Sums larger than 2^26 lose more than two bits, but they are sums of products that the register moves by less. So nothing is
// lost in this case, and seven bits suffice.
#pragma once
#include "tiles/matrix_unit/matrix_unit_floats.h"

namespace gemmsim::NS {

// The number of bits that a floored total has below the truncation of its products. FEW_PLACES: a total that moves down by this
// many places or fewer leaves the last two of these bits zero.
constexpr int32_t BITS_BELOW = 8, FEW_PLACES = BITS_BELOW - 2;
// Everything is a multiple of 2^-90 (kernel_choice_totals.h). So nothing is lost 24 places below this exponent, and scales stop at it.
constexpr int32_t LEAST_FLOORED = BIASES - 80;

// Whether the shifts of an instruction set have an amount for each lane.
#if ISA_BASE
enum { SHIFTS_BY_LANE = 0 };
#else
enum { SHIFTS_BY_LANE = 1 };
#endif
// Twice a sum fits int32. A sum has a register below 2 * 2^kept and eight products below 4 * 2^kept, or sixteen products of 8-bit
// floats, which are below 3.6 * 2^kept.
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

// The constants for the ends of steps, in memory. Otherwise compilers would compute each constant again for each vector.
struct FlooredEnd {
    typedef C32::V V;
    typedef C32::VI VI;
    const VI one = splat_i<C32>(1), bias = splat_i<C32>(C32::BIAS), least = splat_i<C32>(LEAST_FLOORED), bits = splat_i<C32>(BITS_BELOW),
             mask = splat_i<C32>((1 << BITS_BELOW) - 1), large = splat_i<C32>(1 << 24), coarser = splat_i<C32>((BITS_BELOW - 2) << C32::MB),
             deepest = splat_i<C32>(-31), above_last = splat_i<C32>(~1), above_two = splat_i<C32>(~3), half_mask = splat_i<C32>(127),
             few_places = splat_i<C32>(FEW_PLACES);
    // `up` gives 2^(addend_bits - e), and `down` gives 2^(e - total_bits). `window`: how far below the larger exponent a register counts.
    const VI up, down, window;

    explicit FlooredEnd(const HardwareModel& m)
        : up(splat_i<C32>(m.addend_bits + BIASES + C32::BIAS)), down(splat_i<C32>(BIASES + m.total_bits - 1 - C32::BIAS)),
          window(splat_i<C32>(m.window < 0 ? 1024 : m.window)) {
        __asm__ volatile("" : : "r"(this) : "memory");
    }

    // Returns floor(x / 2^n); n is not negative.
    INL_MEMBER VI shifted_down(VI x, VI n) const { return x >> -imax(-n, deepest); }

    // Returns whether -end <= x < end.
    INL_MEMBER VI within(VI x, VI end) const { return (VI)((C32::VU)x + (C32::VU)end < (C32::VU)(end + end)); }

    // Ends a step, to nearest even. `total` is the sum of products truncated below exponent e (biased). The register is floored below
    // the larger exponent.
    INL_MEMBER V operator()(VI total, VI e, V old) const {
        const VI own = imax(exponent_field(old), one) + bias, top = imax(imax(own, e), least), below_top = top - e;
        const VI addend = floor_of(old * (V)((up - top) << C32::MB)) & ~(VI)(top - window > own);
        VI whole, last;  // whole places of the sum, and its bits as far as int32 has room for them
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

// Computes one floored step of ROWS rows.
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
