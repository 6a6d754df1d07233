// Two's complement registers in floating-point lanes. Whole numbers below 2^24 (float) or 2^53 (double) are exact there, and a fused
// multiply-add is one instruction. The planner (choose_integers in kernel_choice_totals.h) proves that the sums stay below.
#pragma once
#include "tiles/gemm_kernel.h"

namespace gemmsim::NS {

#if ISA_AVX512
template <int HOW> INL C32::V whole(C32::V x) { return (C32::V)_mm512_roundscale_ps((__m512)x, HOW | _MM_FROUND_NO_EXC); }
template <int HOW> INL C64::V whole(C64::V x) { return (C64::V)_mm512_roundscale_pd((__m512d)x, HOW | _MM_FROUND_NO_EXC); }
#elif ISA_AVX2
template <int HOW> INL C32::V whole(C32::V x) { return (C32::V)_mm256_round_ps((__m256)x, HOW | _MM_FROUND_NO_EXC); }
template <int HOW> INL C64::V whole(C64::V x) { return (C64::V)_mm256_round_pd((__m256d)x, HOW | _MM_FROUND_NO_EXC); }
#elif ISA_NEON
template <int HOW> INL C32::V whole(C32::V y) {
    const float32x4_t x = (float32x4_t)y;
    return (C32::V)(HOW == 0 ? vrndnq_f32(x) : HOW == 1 ? vrndmq_f32(x) : HOW == 2 ? vrndpq_f32(x) : vrndq_f32(x));
}
template <int HOW> INL C64::V whole(C64::V y) {
    const float64x2_t x = (float64x2_t)y;
    return (C64::V)(HOW == 0 ? vrndnq_f64(x) : HOW == 1 ? vrndmq_f64(x) : HOW == 2 ? vrndpq_f64(x) : vrndq_f64(x));
}
#else
// HOW is 0 for nearest even, 1 for down, 2 for up, 3 for toward zero, as in the instructions.
template <int HOW, class V> INL V whole(V x) {
    for (size_t i = 0; i < sizeof(V) / sizeof(x[0]); ++i)
        x[i] = HOW == 0 ? __builtin_rint(x[i]) : HOW == 1 ? __builtin_floor(x[i]) : HOW == 2 ? __builtin_ceil(x[i]) : __builtin_trunc(x[i]);
    return x;
}
#endif

INL void load_lanes(const float* p, C32::V* v) { *v = load<C32::V>(p); }
INL void load_lanes(const double* p, C64::V* v) { *v = load<C64::V>(p); }
INL void load_lanes(const float* p, C64::V* v) { *v = widened(load<HalfFloats>(p)); }

// P: type of the panels. C: the lanes; sums are stored in tiles of their type. ROUND: each product times `scale` is rounded to a whole
// number, with HOW as above. CLAMP: sums are clamped to [low, high] at every step.
template <class P, class C, bool ROUND, int HOW, bool CLAMP, int ROWS>
INL void integer_rows(const P* a, const P* b, typename C::T* c, int64_t K, int nr, typename C::T scale, typename C::T low,
                      typename C::T high) {
    typedef typename C::V V;
    enum { VECTORS = 2 };  // vectors of a row at a time
    const V lo = splat<C>(low), hi = splat<C>(high), up = splat<C>(scale);
    for (int first = 0; first < nr; first += VECTORS * C::L) {
        V s[ROWS][VECTORS];
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < VECTORS; ++j) s[i][j] = load<V>(c + i * nr + first + j * C::L);
        for (int64_t k = 0; k < K; ++k) {
            V y[VECTORS];
            for (int j = 0; j < VECTORS; ++j) load_lanes(b + k * nr + first + j * C::L, &y[j]);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                const V x = splat<C>((typename C::T)a[k * MR + i]);
                for (int j = 0; j < VECTORS; ++j) {
                    V t = ROUND ? s[i][j] + whole<HOW>(x * y[j] * up) : vfma(x, y[j], s[i][j]);
                    if (CLAMP) t = vmin(hi, vmax(lo, t));
                    s[i][j] = t;
                }
            }
        }
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < VECTORS; ++j) store(c + i * nr + first + j * C::L, s[i][j]);
    }
}

template <class P, class C, bool ROUND, int HOW, bool CLAMP> static void integer_tile_of(const Tile& t, int nr, double scale, double low,
                                                                                         double high) {
    typedef typename C::T T;
    enum { ROWS = INTEGER_ROWS };
    const P *a = (const P*)t.a, *b = (const P*)t.b;
    T* c = (T*)t.c;
    int row = 0;
    for (; row + ROWS <= t.rows; row += ROWS)
        integer_rows<P, C, ROUND, HOW, CLAMP, ROWS>(a + row, b, c + row * nr, t.k, nr, (T)scale, (T)low, (T)high);
    for (; row < t.rows; ++row) integer_rows<P, C, ROUND, HOW, CLAMP, 1>(a + row, b, c + row * nr, t.k, nr, (T)scale, (T)low, (T)high);
}

template <class P, class C, bool CLAMP> static void integer_mode(const Tile& t, int nr, const IntegerLanes& how) {
    switch (how.round) {
        case IntegerLanes::NONE: return integer_tile_of<P, C, false, 0, CLAMP>(t, nr, how.scale, how.low, how.high);
        case IntegerLanes::NEAREST: return integer_tile_of<P, C, true, 0, CLAMP>(t, nr, how.scale, how.low, how.high);
        case IntegerLanes::DOWN: return integer_tile_of<P, C, true, 1, CLAMP>(t, nr, how.scale, how.low, how.high);
        case IntegerLanes::UP: return integer_tile_of<P, C, true, 2, CLAMP>(t, nr, how.scale, how.low, how.high);
        default: return integer_tile_of<P, C, true, 3, CLAMP>(t, nr, how.scale, how.low, how.high);
    }
}

template <class P, class C> static void integer_clamp(const Tile& t, int nr, const IntegerLanes& how) {
    if (how.clamp) integer_mode<P, C, true>(t, nr, how);
    else integer_mode<P, C, false>(t, nr, how);
}

}  // namespace gemmsim::NS
