// Compensated summation: a register and its correction, every operation rounded to the format.
//   kahan         y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t;                    result S
//   neumaier      x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t;                result R(S + C)
//   two_sum       x = R(q); t = R(S + x); z = R(t - S);
//                 C = R(C + R(R(S - R(t - z)) + R(x - z))); S = t;                            result R(S + C)
//   fast_two_sum  x = R(q); t = R(S + x); C = R(C + R(x - R(t - S))); S = t;                  result R(S + C)
// q is the exact product or the rounded one; hi is the larger magnitude of S and x, S on a tie.
#pragma once
#include "gemm_kernel.h"

namespace gemmsim { namespace NS {

template <class C, int KIND, bool ODD> struct Rounded {
    typedef typename C::V V;
    const Const<C>& k;
    INL_MEMBER V round(V s) const { return round_to<C, KIND>(s, k, (typename C::VU){}); }
    INL_MEMBER V add(V x, V y) const { return round(ODD ? add_odd<C>(x, y) : x + y); }
    INL_MEMBER V sub(V x, V y) const { return add(x, -y); }
};

template <class C, int METHOD, int KIND, bool ODD, bool MUL> struct Compensated {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;

    static INL_MEMBER void step(V a, V b, V& s, V& c, const Rounded<C, KIND, ODD>& add, const Rounded<C, KIND, ODD>& mul) {
        V q = V{};
        if (MUL) q = mul.round(ODD ? mul_odd<C>(a, b) : a * b);
        if (METHOD == KAHAN) {
            const V y = MUL ? add.sub(q, c) : add.round(ODD ? fma_odd<C>(a, b, -c) : vfma(a, b, -c));
            const V t = add.add(s, y);
            c = add.sub(add.sub(t, s), y);
            s = t;
            return;
        }
        const V x = add.round(MUL ? q : ODD ? mul_odd<C>(a, b) : a * b), t = add.add(s, x);
        if (METHOD == NEUMAIER) {
            const VI larger = (VI)((VU)s & ~C::SIGN) >= (VI)((VU)x & ~C::SIGN);
            const V hi = larger ? s : x, lo = larger ? x : s;
            c = add.add(c, add.add(add.sub(hi, t), lo));
        } else if (METHOD == TWO_SUM) {
            const V z = add.sub(t, s);
            c = add.add(c, add.add(add.sub(s, add.sub(t, z)), add.sub(x, z)));
        } else {
            c = add.add(c, add.sub(x, add.sub(t, s)));
        }
        s = t;
    }

    template <int ROWS> static INL_MEMBER void rows(const Tile& tile, int row, const Const<C>& ka, const Const<C>& km) {
        typedef typename C::T T;
        const T *a = (const T*)tile.a + row, *b = (const T*)tile.b;
        T* out = (T*)tile.c + row * NV * C::L;
        const Rounded<C, KIND, ODD> add = {ka}, mul = {km};
        V s[ROWS][NV] = {}, c[ROWS][NV] = {};
        for (int64_t k = 0; k < tile.k; ++k) {
            V bv[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; ++i) {
                const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) step(av, bv[j], s[i][j], c[i][j], add, mul);
            }
        }
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) store(out + (i * NV + j) * C::L, METHOD == KAHAN || tile.k == 0 ? s[i][j] : add.add(s[i][j], c[i][j]));
    }

    static void run(const Tile& t) {
        const Const<C> add = Const<C>::make(*t.add), mul = Const<C>::make(*t.mul);
        int row = 0;
        for (; row + 2 <= t.rows; row += 2) rows<2>(t, row, add, mul);
        if (row < t.rows) rows<1>(t, row, add, mul);
    }
};

template <class C, int METHOD> static TileFn compensated_of(int kind, bool odd, bool mul) {
    if (odd && kind <= SUB) return mul ? Compensated<C, METHOD, SUB, true, true>::run : Compensated<C, METHOD, SUB, true, false>::run;
    if (odd && kind == SPECIAL) return mul ? Compensated<C, METHOD, SPECIAL, true, true>::run : Compensated<C, METHOD, SPECIAL, true, false>::run;
    if (odd) return mul ? Compensated<C, METHOD, GENERAL, true, true>::run : Compensated<C, METHOD, GENERAL, true, false>::run;
    return mul ? Compensated<C, METHOD, GENERAL, false, true>::run : Compensated<C, METHOD, GENERAL, false, false>::run;
}

template <class C> static TileFn compensated_method(int method, int kind, bool odd, bool mul) {
    switch (method) {
        case KAHAN: return compensated_of<C, KAHAN>(kind, odd, mul);
        case NEUMAIER: return compensated_of<C, NEUMAIER>(kind, odd, mul);
        case TWO_SUM: return compensated_of<C, TWO_SUM>(kind, odd, mul);
        default: return compensated_of<C, FAST_TWO_SUM>(kind, odd, mul);
    }
}

}}  // namespace gemmsim::NS
