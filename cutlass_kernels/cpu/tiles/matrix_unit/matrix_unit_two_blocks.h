// Steps of two blocks (HW_TWO_BLOCKS: FP8 by mma.sync on chips without a unit for it). The first block has two in four of the
// products, and the second block has the others. Each block is half a fused step; the first one starts from +0, the second one from
// its sum. The register is added last, to nearest even.
#pragma once
#include "tiles/matrix_unit/matrix_unit_floats.h"

namespace gemmsim::NS {

// Adds `sum` to the register, to nearest even in the register's format, binary32 or binary16. Float has more than twice the bits of
// binary16, so a sum may be rounded to float first.
INL void add_register(const float* sum, int n, const FusedOut& out, float* c) {
    typedef C32::V V;
    for (int i = 0; i < n; i += C32::L) {
        const V plain = load<V>(c + i) + load<V>(sum + i) + (V){},
                both = (C32::VI)(plain == plain) ? plain : (V)splat_u<C32>(C32::NAN_BITS);
        const V v = out.keep >= 0 ? both : round_to<C32, Rounding::OVERFLOWS>(both, out.in_lanes, C32::VU{}) + (V){};
        store(c + i, exponent_field(both) == 255 ? both : v);
    }
}

// Computes one block for all rows. Its sums fit int32: they have sixteen products of 8-bit floats, which are below 3.6 * 2^kept, and
// a register below 2 * 2^kept.
template <FusedEnd END> static __attribute__((noinline)) void one_block(FloatStep& x, int rows, float* sum) {
#if ISA_MODES
    const RoundingState mode(END == TOWARD_ZERO ? RoundingState::TO_ZERO : RoundingState::NEAREST);
#endif
    largest_exponents<true>(x.e, rows, x.first, 1, x.count, x.least, x.top);
    int row = 0;
    for (; row + FewRows::value <= rows; row += FewRows::value) fused_rows<END, true, FewRows::value, true>(x, row, sum + row * NR32);
    for (; row < rows; ++row) fused_rows<END, true, 1, true>(x, row, sum + row * NR32);
}

template <FusedEnd END> static void two_block_steps_to(const Tile& t, const HardwareModel& m, const FusedOut& out) {
    FloatStep x(m, out, register_emin(m, *t.add), m.least + BIASES);
    alignas(64) float sum[MR * NR32];
    for (int64_t k = 0; k < t.k; k += m.products) {
        x.count = (int)(t.k - k < m.products ? t.k - k : m.products);
        x.a = (const float*)t.a + k * MR;
        x.b = (const float*)t.b + k * NR32;
        x.e.check(t, m, k, x.count);
        memset(sum, 0, sizeof sum);
        for (int part = 0; part < 2; ++part) {
            x.first = in_block(part, 0);
            one_block<END>(x, t.rows, sum);
        }
        add_register(sum, t.rows * NR32, out, (float*)t.c);
    }
}

static void two_block_steps(const Tile& t, const HardwareModel& m) {
    const FusedOut out = fused_out(m, *t.add);
    if (out.keep >= 0) two_block_steps_to<TOWARD_ZERO>(t, m, out);
    else two_block_steps_to<SHORT>(t, m, out);
}

}  // namespace gemmsim::NS
