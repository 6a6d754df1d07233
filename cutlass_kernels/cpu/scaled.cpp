// Totals of groups of element products, times the scales of their blocks, into the running totals. Once per ISA.
#include "scales.h"
#include "rounders.h"

namespace gemmsim { namespace NS {

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
            store(sum + j, round_to<C64, GENERAL>(exact, k, (C64::VU){}));
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

}  // namespace NS

ScaleAddFn SCALED_GETTER() { return NS::scale_add; }

}  // namespace gemmsim
