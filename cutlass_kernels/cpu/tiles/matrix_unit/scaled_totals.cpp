// Adds partial sums of element products, times the scales of their blocks, to the running sums. Compiled once per instruction set.
#include "product/scales.h"
#include "tiles/rounders.h"

namespace gemmsim {
namespace NS {

void scaled_hardware(const Tile& t, const HardwareModel& m, const GroupScales& scales);

template <class C> static void add_native(typename C::T* s, const typename C::T* t, int nr, const double* xa, const double* xb) {
    typedef typename C::V V;
    typedef typename C::T T;
    alignas(64) T right[64];
    for (int j = 0; j < nr; ++j) right[j] = (T)xb[j];
    for (int i = 0; i < MR; ++i) {
        const V x = splat<C>((T)xa[i]);
        for (int j = 0; j < nr; j += C::L) {
            T* const at = s + i * nr + j;
            store(at, vfma(x * load<V>(right + j), load<V>(t + i * nr + j), load<V>(at)));
        }
    }
}

template <class T> static void add_wide(T* s, const T* t, int nr, const double* xa, const double* xb, const Cast& c) {
    typedef C64::V V;
    const Const<C64> k = Const<C64>::make(c);
    alignas(64) double sum[64], total[64];
    for (int i = 0; i < MR; ++i) {
        for (int j = 0; j < nr; ++j) sum[j] = (double)s[i * nr + j];
        for (int j = 0; j < nr; ++j) total[j] = (double)t[i * nr + j] * (xa[i] * xb[j]);
        for (int j = 0; j < nr; j += C64::L) {
            const V exact = add_odd<C64>(load<V>(sum + j), load<V>(total + j));
            store(sum + j, round_to<C64, Rounding::ANY_MODE>(exact, k, (C64::VU){}));
        }
        for (int j = 0; j < nr; ++j) s[i * nr + j] = (T)sum[j];
    }
}

static void scale_add(int carrier, void* s, const void* t, int nr, const double* xa, const double* xb, const Cast& c, int how) {
    if (how == SCALE_NATIVE && carrier == 0) add_native<C32>((float*)s, (const float*)t, nr, xa, xb);
    else if (how == SCALE_NATIVE) add_native<C64>((double*)s, (const double*)t, nr, xa, xb);
    else if (carrier == 0) add_wide<float>((float*)s, (const float*)t, nr, xa, xb, c);
    else add_wide<double>((double*)s, (const double*)t, nr, xa, xb, c);
}

// The product and its error are exact. Their sum is rounded to odd, and that value is rounded to the cast.
template <class T> static void times_wide(T* x, int64_t n, double factor, const Cast& c) {
    typedef C64::V V;
    const Const<C64> k = Const<C64>::make(c);
    const V f = splat<C64>(factor);
    alignas(64) double wide[C64::L];
    for (int64_t i = 0; i < n; i += C64::L) {
        for (int l = 0; l < C64::L; ++l) wide[l] = (double)x[i + l];
        const V v = load<V>(wide), p = v * f, rest = vfma(v, f, -p), error = select<C64>((C64::VI)(rest == rest), rest, (V){});
        const V exact = select<C64>((C64::VI)(error == (V){}), p, add_odd<C64>(p, error));
        store(wide, round_to<C64, Rounding::ANY_MODE>(exact, k, (C64::VU){}));
        for (int l = 0; l < C64::L; ++l) x[i + l] = (T)wide[l];
    }
}

static void scale_times(int carrier, void* x, int64_t n, double factor, const Cast& c) {
    if (carrier == 0) times_wide((float*)x, n, factor, c);
    else times_wide((double*)x, n, factor, c);
}

template <int ROWS> static void groups_rows(const Tile& t, int row, int64_t n, int64_t block, const float* xa, const float* xb) {
    typedef C32::V V;
    enum { NV = 2 };
    const float *a = (const float*)t.a + row, *b = (const float*)t.b;
    float* const c = (float*)t.c + row * NV * C32::L;
    V sum[ROWS][NV];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) sum[i][j] = load<V>(c + (i * NV + j) * C32::L);
    for (int64_t first = 0; first < t.k; first += block, xa += MR, xb += NV * C32::L) {
        const int64_t last = t.k - first < block ? t.k : first + block;
        for (int64_t k = first; k < last;) {
            V s[ROWS][NV] = {};
            for (const int64_t end = last - k < n ? last : k + n; k < end; ++k) {
                V y[NV];
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) y[j] = load<V>(b + (k * NV + j) * C32::L);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
                    for (int j = 0; j < NV; ++j) s[i][j] = vfma(splat<C32>(a[k * MR + i]), y[j], s[i][j]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) sum[i][j] = vfma(splat<C32>(xa[row + i]) * load<V>(xb + j * C32::L), s[i][j], sum[i][j]);
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C32::L, sum[i][j]);
}

static void scale_groups(const Tile& t, int64_t n, int64_t block, const float* xa, const float* xb) {
    int row = 0;
    // The partial and running sums of the rows fit the registers. AVX-512 has 32 of these, AVX2 has 16.
    for (; WIDTH == 64 && row + 4 <= t.rows; row += 4) groups_rows<4>(t, row, n, block, xa, xb);
    for (; row + 2 <= t.rows; row += 2) groups_rows<2>(t, row, n, block, xa, xb);
    if (row < t.rows) groups_rows<1>(t, row, n, block, xa, xb);
}

}  // namespace NS

const ScaleKernels& SCALED_GETTER() {
    static const ScaleKernels table = {NS::scale_add, NS::scale_times, NS::scale_groups, NS::scaled_hardware};
    return table;
}

}  // namespace gemmsim
