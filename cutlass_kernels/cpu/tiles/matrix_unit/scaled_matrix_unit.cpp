// Steps of block-scaled matrix instructions on a tile, compiled once per instruction set. They are the steps of matrix_unit.h with the
// exponents of scales and, for groups, their significands. docs/design/cpu.md explains why every value here is exact.
#include "float_state.h"
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "product/scales.h"
#include "tiles/matrix_unit/matrix_unit_floats.h"
#include "tiles/matrix_unit/matrix_unit_groups.h"

namespace gemmsim::NS {

// Where scales put the exponent of a register further than this above the products, all products are truncated to zero.
enum { FAR_ABOVE = 80 };

// D = RZ23(S * 2^(E - F)). E is the larger of the register's own exponent and the exponent of the scaled products.
INL void finish_scaled(const HardwareModel& m, const TruncatedSums& truncated, const int32_t* shift, const int32_t* own, float* c, int n) {
    typedef C64::V V;
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at);
        const C64::VI e = imax(wide_int(own + at), wide_int(truncated.exponent + at) + wide_int(shift + at));
        V v = load<V>(truncated.sum + at) + truncate_vector(old * two_to(m.kept - e));
        v = truncate_to<true>(v * two_to(e - m.kept), 23);
        v = is_infinite(old) ? old : v;
        store(c + at, __builtin_convertvector(v, HalfFloats));
    }
}

// One pair of scales, powers of two, for all products of a step. They move the exponent below which it truncates.
struct ScaledStep {
    const FloatStep& x;
    const GroupScales& scales;
    int at_row(int row) const { return scales.a_exponent[x.step * MR + row]; }
    const int32_t* at_columns() const { return scales.b_exponent + x.step * NR32; }
};

// The field of a step's largest product has no lower limit before the scales move it. So zero products are below every register,
// wherever scales move them. Such a field is negative, but fields are widened without their sign. RAISE makes all of them positive.
constexpr int32_t RAISE = -2 * ZERO_EXPONENT;
static_assert(ZERO_EXPONENT + 2 * 127 + 2 * 127 < LEAST_EXPONENT, "a zero times the largest number, with the largest scales");

INL C32::VI raised_low(Shorts x) { return widened_low(x + (int16_t)RAISE); }
INL C32::VI raised_high(Shorts x) { return widened_high(x + (int16_t)RAISE); }

// A step of one row in double lanes, to nearest. A value past the largest finite one becomes infinite in its conversion.
static __attribute__((noinline)) void scaled_row_to_nearest(const ScaledStep& s, int row, float* c) {
    typedef C32::VI VI;
    alignas(64) int32_t own[NR32], shift[NR32];
    TruncatedSums truncated;
    exponents_of(c, NR32, -126, s.x.m.least, own);
    const VI top[NV] = {raised_low(s.x.top[row]), raised_high(s.x.top[row])};
    for (int j = 0; j < NV; ++j) {
        const VI move = load<VI>(s.at_columns() + j * C32::L) + s.at_row(row), above = load<VI>(own + j * C32::L) - move;
        store(shift + j * C32::L, move);
        store(truncated.exponent + j * C32::L, imax((VI)-imax(-above, splat_i<C32>(-FAR_ABOVE)), top[j] - (RAISE + BIASES)));
    }
    truncated_sums<1>(s.x.a + row, s.x.b, 0, 1, s.x.count, s.x.m.kept, &truncated, 0);
    finish_scaled(s.x.m, truncated, shift, own, c, NR32);
}

static void scaled_row_in_double(const ScaledStep& s, int row, float* c) {
#if ISA_MODES
    const RoundingWithin mode(RoundingState::NEAREST);
#endif
    scaled_row_to_nearest(s, row, c);
}

// With a truncation exponent between these, results are normal floats, and so are the powers of two on the way.
constexpr int32_t LEAST_SCALED = BIASES - 100, MOST_SCALED = BIASES + 100;
INL C32::VI between(C32::VI low, C32::VI high, C32::VI x) { return (C32::VI)-imax(-imax(x, low), -high); }

// A step of ROWS rows in float lanes, where conversions round toward zero. False: a sum may leave int32 or the range of normal floats,
// and the registers are unchanged.
template <int ROWS> INL bool scaled_rows(const ScaledStep& s, int row, float* c) {
    typedef C32::V V;
    typedef C32::VI VI;
    V scale[ROWS][NV], back[ROWS][NV];
    VI total[ROWS][NV], outside[ROWS][NV], left = {};
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
        const VI top[NV] = {raised_low(s.x.top[row + i]), raised_high(s.x.top[row + i])};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            const V old = load<V>(c + i * NR32 + j * C32::L);
            const VI move = load<VI>(s.at_columns() + j * C32::L) + (s.at_row(row + i) - RAISE),
                     own = imax(aligning_field(old, -126) + C32::BIAS, splat_i<C32>(s.x.m.least + BIASES)), e = imax(own, top[j] + move);
            const VI here = between(splat_i<C32>(LEAST_SCALED), splat_i<C32>(MOST_SCALED), e);
            scale[i][j] = power_above(s.x.m.kept + RAISE,
                                      between(splat_i<C32>(LEAST_PRODUCT + RAISE), splat_i<C32>(BIASES + FAR_ABOVE + RAISE), e - move));
            const V up = power_above(s.x.m.kept, here);
            back[i][j] = inverse_power(up);
            total[i][j] = __builtin_convertvector(old * up, VI);
            outside[i][j] = (VI)(here != e);
            left |= outside[i][j] & (VI)(old != (V){});
        }
    }
    add_parts<ROWS>(s.x, row, scale, total, left);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) left |= outside[i][j] & (VI)(total[i][j] != 0);
    if (__builtin_expect(any_negative(left), 0)) return false;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) store(c + i * NR32 + j * C32::L, float_toward_zero(total[i][j]) * back[i][j]);
    return true;
}

template <bool IN_FLOATS> static __attribute__((noinline)) void scaled_steps(const Tile& t, const HardwareModel& m,
                                                                             const GroupScales& scales) {
    const FusedOut out = fused_out(m, *t.add);
    FloatStep x(m, out, -126, -RAISE);
    const ScaledStep s = {x, scales};
    steps_in_floats(
        x, t,
        [&](auto n, int row, float* c) __attribute__((always_inline)) { return IN_FLOATS && scaled_rows<decltype(n)::value>(s, row, c); },
        [&](int row, float* c) { scaled_row_in_double(s, row, c); });
}

static void fused_steps_scaled(const Tile& t, const HardwareModel& m, const GroupScales& scales) {
    const bool in_floats = fused_end(m, fused_out(m, *t.add)) != IN_DOUBLE;
#if ISA_MODES
    const RoundingState mode(RoundingState::TO_ZERO);
#endif
    if (in_floats) scaled_steps<true>(t, m, scales);
    else scaled_steps<false>(t, m, scales);
}

void scaled_hardware(const Tile& t, const HardwareModel& m, const GroupScales& scales) {
    if (m.kind == HW_GROUPS) group_steps(t, m, &scales);
    else fused_steps_scaled(t, m, scales);
}

}  // namespace gemmsim::NS
