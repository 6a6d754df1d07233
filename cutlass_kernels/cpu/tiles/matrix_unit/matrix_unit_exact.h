// Fused steps that truncate nothing. Double lanes compute their sums. Where the processor's flag says that a sum was inexact, the step
// is computed again in two doubles (matrix_unit_long.h).
#pragma once
#include "float_state.h"
#include "tiles/matrix_unit/matrix_unit_long.h"

namespace gemmsim::NS {

// Adds the products of ROWS rows to their registers, one after the other. Products of binary32 numbers are exact in double lanes.
template <int ROWS> INL void sums_of_rows(const float* a, const float* b, int n, const float* c, int row, double* sum) {
    typedef C64::V V;
    enum { VECTORS = 2 * NV };
    V s[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < VECTORS; ++j) s[i][j] = wide(c + (row + i) * NR32 + j * D_LANES);
    for (int q = 0; q < n; ++q) {
        V y[VECTORS];
        for (int j = 0; j < VECTORS; ++j) y[j] = wide(b + q * NR32 + j * D_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) {
            const V x = splat<C64>((double)a[q * MR + row + i]);
#if defined(ISA_BASE)
            for (int j = 0; j < VECTORS; ++j) s[i][j] += x * y[j];
#else
            for (int j = 0; j < VECTORS; ++j) s[i][j] = vfma(x, y[j], s[i][j]);
#endif
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < VECTORS; ++j) store(sum + (row + i) * NR32 + j * D_LANES, s[i][j]);
}

INL void round_sums(const double* sum, int n, const FusedOut& out, float* c) {
    typedef C64::V V;
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at), exact = load<V>(sum + at);
        const V v = converted<true>(exact, out);
        store(c + at, __builtin_convertvector(is_special(old) ? old : v, HalfFloats) + out.zero);
    }
}

// `bits` below a step's largest exponent contain everything (exact_bits in kernel_choice_totals.h).
static __attribute__((noinline)) void exact_steps(const Tile& t, const HardwareModel& m, int bits) {
    HardwareModel truncated = m;
    truncated.kept = bits;
    LongStep slow(t, truncated);
    alignas(64) double sum[MR * NR32];
    float* const c = (float*)t.c;
    for (int64_t k = 0; k < t.k; k += m.products) {
        const int count = (int)(t.k - k < m.products ? t.k - k : m.products);
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        forget_inexact();
        int row = 0;
        for (; row + FewRows::value <= t.rows; row += FewRows::value) sums_of_rows<FewRows::value>(a, b, count, c, row, sum);
        for (; row < t.rows; ++row) sums_of_rows<1>(a, b, count, c, row, sum);
        if (__builtin_expect(was_inexact(), 0)) slow.run(k, count);
        else round_sums(sum, t.rows * NR32, slow.out, c);
    }
}

}  // namespace gemmsim::NS
