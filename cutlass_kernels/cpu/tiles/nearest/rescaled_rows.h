// Rows of a tile of rescaled registers (rescaled.h) whose sums are truncated.
#pragma once
#include "tiles/directed/directed.h"
#include "tiles/nearest/midpoint_filter.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

// Detects midpoints among sums rounded toward zero to which half of the last place was added: nothing is left below that place then.
struct Midpoints {
    typedef C32::VU VU;
#if ISA_AVX512
    __mmask16 uneven = 0xFFFF;
    INL_MEMBER void check(VU u, VU goes) { uneven = _mm512_mask_test_epi32_mask(uneven, (__m512i)u, (__m512i)goes); }
    INL_MEMBER bool any() const { return !_kortestc_mask16_u8(uneven, uneven); }
#else
    VU even = {};
    INL_MEMBER void check(VU u, VU goes) { even |= (VU)((u & goes) == 0); }
    INL_MEMBER bool any() const { return !none_set((C32::VI)even); }
#endif
};

// Sums of ROWS rows. RTZ, RNA and RNE run under the processor's mode toward zero. RTZ truncates sums as they are. RNA adds half of the last
// place first. RNE does the same, which is nearest even as well unless a sum is on a midpoint.
// RU and RD run under the modes up and down. They add all discarded bits first where their direction is away from zero.
template <int MODE, int ROWS> struct RescaledRows {
    typedef C32::V V;
    typedef C32::VU VU;
    const Tile& t;
    const int row, dropped;
    const VU keep, half, goes;
    const float *a, *b;
    RegisterBlock<C32, ROWS> s;

    INL_MEMBER RescaledRows(const Tile& tile, int first)
        : t(tile), row(first), dropped(C32::MB + 1 - t.add->p), keep(in_register(splat_u<C32>(~0u << dropped))),
          half(in_register(splat_u<C32>(1u << (dropped - 1)))), goes(in_register((VU)~keep)), a((const float*)t.a + row),
          b((const float*)t.b) {}
    INL_MEMBER float* at(int i, int j) const { return (float*)t.c + ((row + i) * NV + j) * C32::L; }
    template <class F> static INL_MEMBER void each(F f) { RegisterBlock<C32, ROWS>::each(f); }
    INL_MEMBER void get() {
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = in_register(load<V>(at(i, j))); });
    }
    INL_MEMBER void put() const {
        each([&](int i, int j)
                 __attribute__((always_inline)) { store(at(i, j), MODE == RD ? without_minus_zero<C32>(s[i][j]) : s[i][j]); });
    }
    INL_MEMBER V sum(int i, int j) const { return vfma(splat<C32>(a[i]), load<V>(b + j * C32::L), s[i][j]); }
    INL_MEMBER void next() { a += MR, b += NV * C32::L; }

    INL_MEMBER void term() {
        each([&](int i, int j) __attribute__((always_inline)) {
            VU u = (VU)sum(i, j);
            if (MODE == RU || MODE == RD) u = before_truncation<C32, MODE>(u, goes);
            else if (MODE != RTZ) u += half;
            s[i][j] = (V)(u & keep);
        });
        next();
    }
    // term() without next(). Returns whether a sum rounded toward zero is on a midpoint; its rounding may then be wrong.
    INL_MEMBER bool checked_term() {
        Midpoints seen;
        each([&](int i, int j) __attribute__((always_inline)) {
            const VU u = (VU)sum(i, j) + half;
            seen.check(u, goes);
            s[i][j] = (V)(u & keep);
        });
        return seen.any();
    }
    INL_MEMBER void terms(int64_t n) {
        for (const float* const end = a + n * MR; a != end;) term();
    }
};

}  // namespace gemmsim::NS
#endif
