// Fused steps that keep more than KEPT_IN_DOUBLE bits. Their sums are in two doubles, which are rounded to odd in one before the
// conversion.
#pragma once
#include "tiles/matrix_unit/matrix_unit.h"

namespace gemmsim::NS {

// Computes the sums of one row in two doubles: multiples of 2^(exponent - KEPT_IN_DOUBLE), and multiples of 2^(exponent - kept) for
// what is below.
INL void truncated_sums_in_two(const float* a, const float* b, int n, int kept, TruncatedSums* truncated, double* low, int row) {
    typedef C64::V V;
    enum { VECTORS = 2 * NV };
    const V finer = splat<C64>(Const<C64>::power(kept - KEPT_IN_DOUBLE));
    V scale[VECTORS], high[VECTORS] = {}, rest[VECTORS] = {};
    for (int j = 0; j < VECTORS; ++j) scale[j] = two_to(KEPT_IN_DOUBLE - wide_int(truncated->exponent + row * NR32 + j * D_LANES));
    for (int q = 0; q < n; ++q) {
        const V x = splat<C64>((double)a[q * MR + row]);
        for (int j = 0; j < VECTORS; ++j) {
            const V p = x * wide(b + q * NR32 + j * D_LANES) * scale[j], whole = truncate_vector(p);
            high[j] += whole;
            rest[j] += truncate_vector((p - whole) * finer);
        }
    }
    for (int j = 0; j < VECTORS; ++j) {
        store(truncated->sum + row * NR32 + j * D_LANES, high[j]);
        store(low + row * NR32 + j * D_LANES, rest[j]);
    }
}

// finish_fused() of such sums. Both parts are rounded to odd in one double, and from that value the conversion rounds correctly.
INL void finish_in_two(const HardwareModel& m, const FusedOut& out, const TruncatedSums& truncated, const double* low, float* c, int n) {
    typedef C64::V V;
    const V finer = splat<C64>(Const<C64>::power(m.kept - KEPT_IN_DOUBLE)),
            coarser = splat<C64>(Const<C64>::power(KEPT_IN_DOUBLE - m.kept));
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at);
        const C64::VI e = wide_int(truncated.exponent + at);
        const V p = old * two_to(KEPT_IN_DOUBLE - e), whole = truncate_vector(p);
        const V high = load<V>(truncated.sum + at) + whole, rest = load<V>(low + at) + truncate_vector((p - whole) * finer);
        const V v = converted<true>(add_odd<C64>(high, rest * coarser) * two_to(e - KEPT_IN_DOUBLE), out);
        store(c + at, __builtin_convertvector(is_special(old) ? old : v, HalfFloats) + out.zero);
    }
}

// Computes the steps of a tile one after the other.
struct LongStep {
    const Tile& t;
    const HardwareModel& m;
    const FusedOut out;
    const int emin;
    StepExponents e;
    TruncatedSums truncated;
    alignas(64) double low[MR * NR32];

    LongStep(const Tile& tile, const HardwareModel& model)
        : t(tile), m(model), out(fused_out(model, *tile.add)), emin(register_emin(model, *tile.add)) {}

    void run(int64_t k, int count) {
        Shorts top[MR];
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        float* const c = (float*)t.c;
        const int n = t.rows * NR32;
        e.check(t, m, k, count);
        exponents_of(c, n, emin, m.least, truncated.exponent);
        largest_exponents(e, t.rows, 0, 1, count, NO_FIELD, top);
        for (int i = 0; i < t.rows; ++i) {
            raise_to(top[i], truncated.exponent + i * NR32);
            truncated_sums_in_two(a, b, count, m.kept, &truncated, low, i);
        }
        finish_in_two(m, out, truncated, low, c, n);
    }
};

// block_steps() of fused steps that keep more than KEPT_IN_DOUBLE bits.
static void long_steps(const Tile& t, const HardwareModel& m) {
    LongStep step(t, m);
    for (int64_t k = 0; k < t.k; k += m.products) step.run(k, (int)(t.k - k < m.products ? t.k - k : m.products));
}

}  // namespace gemmsim::NS
