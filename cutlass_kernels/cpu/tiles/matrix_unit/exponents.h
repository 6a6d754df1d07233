// Exponents of a step's operands, and the largest exponent of its products, in lanes of 16 bits. One vector serves all columns
// of a tile.
//
// Exponents are exponent fields of binary32, biased by 127; those of products are biased by twice that. A subnormal of its own format
// has the field of that format's least normal number. Binary32 subnormals are below the least normal number of every format.
// Products with a zero have fields below all others (hardware_exponent in hardware_model.h).
#pragma once
#include "tiles/philox_vec.h"
#include "isa_table.h"
#include "vec.h"

namespace gemmsim::NS {

enum { NR32 = 2 * C32::L };
constexpr int32_t BIASES = 2 * C32::BIAS;
// The fields of a zero operand, and of a step whose products are all zero. They are below, or as low as, any other field.
constexpr int32_t ZERO_FIELD = ZERO_EXPONENT, NO_FIELD = LEAST_EXPONENT + BIASES;

typedef Vec<int16_t>::type Shorts;

// Packs two vectors of positive numbers into one, and unpacks them. The processor decides the order of the lanes in between.
#if ISA_AVX512
INL Shorts narrowed(C32::VI low, C32::VI high) { return (Shorts)_mm512_packs_epi32((__m512i)low, (__m512i)high); }
INL C32::VI widened_low(Shorts x) { return (C32::VI)_mm512_unpacklo_epi16((__m512i)x, __m512i{}); }
INL C32::VI widened_high(Shorts x) { return (C32::VI)_mm512_unpackhi_epi16((__m512i)x, __m512i{}); }
INL Shorts larger_of(Shorts a, Shorts b) { return (Shorts)_mm512_max_epi16((__m512i)a, (__m512i)b); }
#elif ISA_AVX2
INL Shorts narrowed(C32::VI low, C32::VI high) { return (Shorts)_mm256_packs_epi32((__m256i)low, (__m256i)high); }
INL C32::VI widened_low(Shorts x) { return (C32::VI)_mm256_unpacklo_epi16((__m256i)x, __m256i{}); }
INL C32::VI widened_high(Shorts x) { return (C32::VI)_mm256_unpackhi_epi16((__m256i)x, __m256i{}); }
INL Shorts larger_of(Shorts a, Shorts b) { return (Shorts)_mm256_max_epi16((__m256i)a, (__m256i)b); }
#elif ISA_NEON
INL Shorts narrowed(C32::VI low, C32::VI high) { return (Shorts)vcombine_s16(vmovn_s32((int32x4_t)low), vmovn_s32((int32x4_t)high)); }
INL C32::VI widened_low(Shorts x) { return (C32::VI)vmovl_s16(vget_low_s16((int16x8_t)x)); }
INL C32::VI widened_high(Shorts x) { return (C32::VI)vmovl_s16(vget_high_s16((int16x8_t)x)); }
INL Shorts larger_of(Shorts a, Shorts b) { return (Shorts)vmaxq_s16((int16x8_t)a, (int16x8_t)b); }
#else
INL Shorts narrowed(C32::VI low, C32::VI high) {
    Shorts x;
    for (int i = 0; i < C32::L; ++i) x[i] = (int16_t)low[i], x[C32::L + i] = (int16_t)high[i];
    return x;
}
INL C32::VI widened_low(Shorts x) {
    C32::VI r;
    for (int i = 0; i < C32::L; ++i) r[i] = x[i];
    return r;
}
INL C32::VI widened_high(Shorts x) {
    C32::VI r;
    for (int i = 0; i < C32::L; ++i) r[i] = x[C32::L + i];
    return r;
}
INL Shorts larger_of(Shorts a, Shorts b) { return a > b ? a : b; }
#endif

INL C32::VI exponent_field(C32::V x) { return (C32::VI)((C32::VU)x << 1 >> 24); }

// Returns the field that aligns an operand whose format has the least normal number 2^emin.
INL C32::VI aligning_field(C32::V x, int emin) {
    const C32::VI field = imax(exponent_field(x), splat_i<C32>(emin < -126 ? 1 : emin + C32::BIAS));
    return (C32::VI)(x == (C32::V){}) ? splat_i<C32>(ZERO_FIELD) : field;
}

// Computes the fields of `count` terms of a panel. Those of A are stored twice in 32 bits. Whole vectors are written.
INL void fields_of_a(const float* x, int64_t count, int emin, int32_t* out) {
    for (int64_t i = 0; i < count * MR; i += C32::L) {
        // A vector may have room for two terms where only one is left.
        C32::V v = {};
        if (C32::L > MR && i + C32::L > count * MR) memcpy(&v, x + i, sizeof(float) * MR);
        else v = load<C32::V>(x + i);
        store(out + i, (C32::VI)((C32::VU)(aligning_field(v, emin) & 0xFFFF) * 0x10001u));
    }
}
INL void fields_of_b(const float* x, int64_t count, int emin, int16_t* out) {
    for (int64_t i = 0; i < count * NR32; i += NR32)
        store(out + i, narrowed(aligning_field(load<C32::V>(x + i), emin), aligning_field(load<C32::V>(x + i + C32::L), emin)));
}

// Sets one bit for each term that is not zero, in groups of up to 16 terms. The bits of A are stored twice in 32 bits.
INL void nonzero_of_a(const float* x, int64_t count, int group, int32_t* out) {
    for (int64_t first = 0; first < count; first += group, out += MR)
        for (int i = 0; i < MR; ++i) {
            uint32_t bits = 0;
            for (int64_t q = first; q < first + group && q < count; ++q) bits |= (uint32_t)(x[q * MR + i] != 0) << (q - first);
            out[i] = (int32_t)(bits * 0x10001u);
        }
}
INL void nonzero_of_b(const float* x, int64_t count, int group, int16_t* out) {
    typedef C32::V V;
    for (int64_t first = 0; first < count; first += group, out += NR32) {
        Shorts bits = {};
        for (int64_t q = first; q < first + group && q < count; ++q) {
            const V low = load<V>(x + q * NR32), high = load<V>(x + q * NR32 + C32::L);
            const int32_t bit = (int32_t)((1u << (q - first)) * 0x10001u);
            bits |= narrowed((C32::VI)(low != (V){}), (C32::VI)(high != (V){})) & (Shorts)splat_i<C32>(bit);
        }
        store(out, bits);
    }
}

// The fields of a step's terms: those of the tile (Tile::field_a, Tile::field_b), or computed here.
struct StepExponents {
    enum { MOST = 64 };
    const int32_t* a;
    const int16_t* b;
    alignas(64) int32_t own_a[MOST * MR];
    alignas(64) int16_t own_b[MOST * NR32];

    INL_MEMBER void check(const Tile& t, const HardwareModel& m, int64_t k, int count) {
        if (t.field_a) {
            a = t.field_a + k * MR;
            b = t.field_b + k * NR32;
            return;
        }
        fields_of_a((const float*)t.a + k * MR, count, m.a_emin, own_a);
        fields_of_b((const float*)t.b + k * NR32, count, m.b_emin, own_b);
        a = own_a;
        b = own_b;
    }
};

// Returns the index of the next product after `q` with this stride. PAIRS: two products in four, of which `q` is one.
template <bool PAIRS> INL int after(int q, int stride) { return PAIRS ? q + 1 + q % 2 * 2 : q + stride; }

// For ROWS rows from `row` on, finds the largest field among the products first, after<PAIRS>(first), ... below `n`.
// Products that are zero do not count. The result is at least `least`.
template <int ROWS, bool PAIRS> INL void largest_of_rows(const StepExponents& x, int row, int first, int stride, int n, int least,
                                                         Shorts* top) {
    Shorts e[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) e[i] = (int16_t)least - (Shorts){};
    for (int q = first; q < n; q = after<PAIRS>(q, stride)) {
        const Shorts y = load<Shorts>(x.b + q * NR32);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i) e[i] = larger_of(e[i], y + (Shorts)splat_i<C32>(x.a[q * MR + row + i]));
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) top[i] = e[i];
}

template <bool PAIRS = false> INL void largest_exponents(const StepExponents& x, int rows, int first, int stride, int n, int least,
                                                         Shorts* top) {
    int row = 0;
    for (; row + 8 <= rows; row += 8) largest_of_rows<8, PAIRS>(x, row, first, stride, n, least, top + row);
    for (; row + 2 <= rows; row += 2) largest_of_rows<2, PAIRS>(x, row, first, stride, n, least, top + row);
    for (; row < rows; ++row) largest_of_rows<1, PAIRS>(x, row, first, stride, n, least, top + row);
}

// Raises exponent[columns] of a row to the fields `top`, without their bias, where these are larger.
INL void raise_to(Shorts top, int32_t* exponent) {
    store(exponent, imax(load<C32::VI>(exponent), widened_low(top) - BIASES));
    store(exponent + C32::L, imax(load<C32::VI>(exponent + C32::L), widened_high(top) - BIASES));
}

}  // namespace gemmsim::NS
