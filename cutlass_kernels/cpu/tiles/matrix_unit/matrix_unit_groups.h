// Steps of kind HW_GROUPS: groups of e2m1 products are summed exactly and multiplied by both scales. Only the scales' exponents align
// the sums. Groups whose products are all zero do not count.
#pragma once
#include "tiles/matrix_unit/matrix_unit.h"

namespace gemmsim::NS {

// The scales of a step's groups (MR of rows and NR32 of columns for each group), the exponents of these, and which elements are not
// zero (nonzero_of_a, nonzero_of_b).
struct StepGroups {
    const double *a, *b;
    const int32_t *a_exponent, *b_exponent, *a_nonzero;
    const int16_t* b_nonzero;
    int count;
};

// Computes the sums of one group, which are exact in float lanes.
template <int ROWS> INL void group_sums(const float* a, const float* b, int count, float* sums) {
    typedef C32::V V;
    V s[ROWS][NV] = {};
    for (int q = 0; q < count; ++q) {
        V y[NV];
        for (int j = 0; j < NV; ++j) y[j] = load<V>(b + q * NR32 + j * C32::L);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) s[i][j] = vfma(splat<C32>(a[q * MR + i]), y[j], s[i][j]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(sums + i * NR32 + j * C32::L, s[i][j]);
}

// Raises e[ROWS * NR32] to the exponents of the groups that count, where these are larger.
template <int ROWS> INL void raise_to_groups(const StepGroups& x, int row, int32_t* e) {
    typedef C32::VI VI;
    for (int g = 0; g < x.count; ++g)
        for (int i = 0; i < ROWS; ++i) {
            const Shorts both = load<Shorts>(x.b_nonzero + g * NR32) & (Shorts)splat_i<C32>(x.a_nonzero[g * MR + row + i]);
            const VI counts[NV] = {widened_low(both), widened_high(both)};
            for (int j = 0; j < NV; ++j) {
                int32_t* const at = e + i * NR32 + j * C32::L;
                const VI own = load<VI>(at), group = load<VI>(x.b_exponent + g * NR32 + j * C32::L) + x.a_exponent[g * MR + row + i];
                store(at, counts[j] != 0 ? imax(own, group) : own);
            }
        }
}

// Computes one step of ROWS rows with `terms` products. Sums times scales are exact in double lanes.
template <int ROWS> INL void group_rows(const float* a, const float* b, int terms, const HardwareModel& m, const StepGroups& x, int row,
                                        float* c) {
    typedef C64::V V;
    enum { MOST = 4 };
    alignas(64) float sums[MOST][ROWS * NR32];
    alignas(64) int32_t exponent[ROWS * NR32];
    for (int g = 0; g < x.count; ++g) {
        const int rest = terms - g * m.group;
        group_sums<ROWS>(a + g * m.group * MR + row, b + g * m.group * NR32, rest < 0 ? 0 : rest < m.group ? rest : m.group, sums[g]);
    }
    exponents_of(c, ROWS * NR32, -126, m.least, exponent);
    raise_to_groups<ROWS>(x, row, exponent);
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NR32; j += D_LANES) {
            const int at = i * NR32 + j;
            const C64::VI e = wide_int(exponent + at);
            const V old = wide(c + at), up = two_to(m.kept - e);
            V v = truncate_vector(old * up);
            for (int g = 0; g < x.count; ++g)
                v += truncate_vector(wide(sums[g] + at) * (load<V>(x.b + g * NR32 + j) * x.a[g * MR + row + i]) * up);
            v = truncate_to<true>(v * two_to(e - m.kept), 23);
            v = is_infinite(old) ? old : v;
            store(c + at, __builtin_convertvector(v, HalfFloats));
        }
}

// Computes all steps of a tile. `scales`: those of all groups, or null where they are 1.
static void group_steps(const Tile& t, const HardwareModel& m, const GroupScales* scales) {
    enum { MOST = 4 };
    alignas(64) double ones[MOST * NR32];
    alignas(64) int32_t zeros[MOST * NR32] = {}, nonzero_a[MOST * MR];
    alignas(64) int16_t nonzero_b[MOST * NR32];
    for (double& one : ones) one = 1;
    const int groups = m.products / m.group;
    int64_t at = 0;
    for (int64_t k = 0; k < t.k; k += m.products, at += groups) {
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        const int terms = (int)(t.k - k < m.products ? t.k - k : m.products);
        StepGroups x = {ones, ones, zeros, zeros, nonzero_a, nonzero_b, (terms + m.group - 1) / m.group};
        if (scales) {
            x.a = scales->a + at * MR;
            x.b = scales->b + at * NR32;
            x.a_exponent = scales->a_exponent + at * MR;
            x.b_exponent = scales->b_exponent + at * NR32;
        }
        if (t.field_a) {
            x.a_nonzero = t.field_a + at * MR;
            x.b_nonzero = t.field_b + at * NR32;
        } else {
            nonzero_of_a(a, terms, m.group, nonzero_a);
            nonzero_of_b(b, terms, m.group, nonzero_b);
        }
        int row = 0;
        auto some = [&](auto count) __attribute__((always_inline)) {
            constexpr int ROWS = decltype(count)::value;
            group_rows<ROWS>(a, b, terms, m, x, row, (float*)t.c + row * NR32);
            row += ROWS;
        };
        struct Four {
            enum { value = WIDTH == 64 ? 4 : 2 };
        };
        while (row + Four::value <= t.rows) some(Four{});
        while (row < t.rows) some(OneRow{});
    }
}

}  // namespace gemmsim::NS
