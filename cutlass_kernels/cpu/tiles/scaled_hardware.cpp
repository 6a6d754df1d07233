// Steps of block-scaled matrix instructions on a tile, once per ISA: the steps of hardware.h with the exponents (and,
// for groups, the significands) of scales. docs/design/cpu.md says why every value here is exact.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/hardware.h"
#include "product/scales.h"

namespace gemmsim::NS {

// Register exponents that scales put further than this above products cut all of them to zero.
enum { FAR_ABOVE = 80 };

// D = RZ23(S * 2^(E - F)), with E the larger of the register's own exponent and that of the scaled products.
INL void finish_scaled(const HardwareModel& m, const Cut& cut, const int32_t* shift, const int32_t* own, float* c, int n) {
    typedef C64::V V;
    for (int at = 0; at < n; at += D_LANES) {
        const V old = wide(c + at);
        const C64::VI e = imax(wide_int(own + at), wide_int(cut.exponent + at) + wide_int(shift + at));
        V v = load<V>(cut.sum + at) + whole_cut(old * two_to(m.kept - e));
        v = cut_to<true>(v * two_to(e - m.kept), 23);
        v = is_infinite(old) ? old : v;
        store(c + at, __builtin_convertvector(v, HalfFloats));
    }
}

// One pair of scales, powers of two, for all products of a step: they move the exponent of its cut.
static void fused_steps(const Tile& t, const HardwareModel& m, const GroupScales& s) {
    typedef C32::VI VI;
    StepExponents e;
    alignas(64) int32_t own[MR * NR32], shift[MR * NR32];
    Cut cut;
    float* const c = (float*)t.c;
    const int n = t.rows * NR32;
    const int32_t *xa = s.a_exponent, *xb = s.b_exponent;
    for (int64_t k = 0; k < t.k; k += m.products, xa += MR, xb += NR32) {
        const int count = (int)(t.k - k < m.products ? t.k - k : m.products);
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        e.look(t, m, k, count);
        exponents_of(c, n, -126, own);
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < NR32; j += C32::L) {
                const VI move = load<VI>(xb + j) + xa[i], above = load<VI>(own + i * NR32 + j) - move;
                store(shift + i * NR32 + j, move);
                store(cut.exponent + i * NR32 + j, (VI)-imax(-above, splat_i<C32>(-FAR_ABOVE)));
            }
        cut_products<false>(a, b, e, 0, 1, count, m.kept, t.rows, &cut);
        finish_scaled(m, cut, shift, own, c, n);
    }
}

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

// Sums of groups, exact in float lanes, times both scales, exact in double lanes; scales alone align.
template <int ROWS> INL void group_step(const float* a, const float* b, int64_t left, const HardwareModel& m, const double* xa,
                                        const double* xb, const int32_t* ea, const int32_t* eb, float* c) {
    typedef C64::V V;
    typedef C64::VI VI;
    enum { MOST = 4 };
    const int groups = m.products / m.group;
    alignas(64) float sums[MOST][ROWS * NR32];
    alignas(64) int32_t own[ROWS * NR32];
    for (int g = 0; g < groups; ++g) {
        const int64_t rest = left - g * m.group;
        group_sums<ROWS>(a + g * m.group * MR, b + g * m.group * NR32, rest < 0 ? 0 : rest < m.group ? (int)rest : m.group, sums[g]);
    }
    exponents_of(c, ROWS * NR32, -126, own);
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NR32; j += D_LANES) {
            const int at = i * NR32 + j;
            VI e = wide_int(own + at);
            for (int g = 0; g < groups; ++g) e = imax(e, wide_int(eb + g * NR32 + j) + (int64_t)ea[g * MR + i]);
            const V old = wide(c + at), up = two_to(m.kept - e);
            V v = whole_cut(old * up);
            for (int g = 0; g < groups; ++g) v += whole_cut(wide(sums[g] + at) * (load<V>(xb + g * NR32 + j) * xa[g * MR + i]) * up);
            v = cut_to<true>(v * two_to(e - m.kept), 23);
            v = is_infinite(old) ? old : v;
            store(c + at, __builtin_convertvector(v, HalfFloats));
        }
}

static void group_steps_scaled(const Tile& t, const HardwareModel& m, const GroupScales& s) {
    const int64_t groups = m.products / m.group;
    for (int64_t k = 0, at = 0; k < t.k; k += m.products, at += groups) {
        const float *a = (const float*)t.a + k * MR, *b = (const float*)t.b + k * NR32;
        float* const c = (float*)t.c;
        int row = 0;
        auto some = [&](auto count) __attribute__((always_inline)) {
            constexpr int ROWS = decltype(count)::value;
            group_step<ROWS>(a + row, b, t.k - k, m, s.a + at * MR + row, s.b + at * NR32, s.a_exponent + at * MR + row,
                             s.b_exponent + at * NR32, c + row * NR32);
            row += ROWS;
        };
        struct Four {
            enum { value = WIDTH == 64 ? 4 : 2 };
        };
        struct One {
            enum { value = 1 };
        };
        while (row + Four::value <= t.rows) some(Four{});
        while (row < t.rows) some(One{});
    }
}

void scaled_hardware(const Tile& t, const HardwareModel& m, const GroupScales& scales) {
    if (m.kind == HW_GROUPS) group_steps_scaled(t, m, scales);
    else fused_steps(t, m, scales);
}

}  // namespace gemmsim::NS
