// Compensated summation: a register and its correction, every operation rounded to the format.
//   kahan         y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t;                    result S
//   neumaier      x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t;                result R(S + C)
//   two_sum       x = R(q); t = R(S + x); z = R(t - S);
//                 C = R(C + R(R(S - R(t - z)) + R(x - z))); S = t;                            result R(S + C)
//   fast_two_sum  x = R(q); t = R(S + x); C = R(C + R(x - R(t - S))); S = t;                  result R(S + C)
// q is the exact product or the rounded one; hi is the larger magnitude of S and x, S on a tie.
//
// Kinds: NONE, the carrier is the format. SUB, a wager that nothing overflows, with nothing in the loop to see to it: S is
// looked at after every few steps, between which it cannot grow past the format (plan.h), and a lost wager is done again
// by GENERAL. In SUB the sums of two registers are rounded from the carrier's nearest sum (lemma A of plan.h) and as
// multiples of the smallest quantum never underflow; what has a product in it is rounded from odd. Signs of zero get lost
// on the way and are not missed: S starts as +0 and no exact sum makes it -0, so that the result never is.
#pragma once
#include "tiles/gemm_kernel.h"

namespace gemmsim::NS {

template <class C, int KIND, bool ODD> struct Rounded {
    typedef typename C::V V;
    const Const<C>& k;
    INL_MEMBER V round(V s) const { return round_to<C, KIND>(s, k, (typename C::VU){}); }
    INL_MEMBER V add(V x, V y) const {
        if (KIND == SUB) return round_to<C, PLAIN>(x + y, k, (typename C::VU){});
        return round(ODD ? add_odd<C>(x, y) : x + y);
    }
    INL_MEMBER V sub(V x, V y) const { return add(x, -y); }
    INL_MEMBER V add_product(V q, V y) const { return round(ODD ? add_odd<C>(q, y) : q + y); }
};

template <class C, int METHOD, int KIND, bool ODD> struct Compensated {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;

    static INL_MEMBER V product(V a, V b) { return ODD ? mul_odd<C>(a, b) : a * b; }
    // `rounds`: the product has a rounding of its own, `mul`.
    static INL_MEMBER void step(V a, V b, V& s, V& c, const Rounded<C, KIND, ODD>& add, const Rounded<C, KIND, ODD>& mul, bool rounds) {
        if (METHOD == KAHAN) {
            const V y = rounds ? add.add_product(mul.round(product(a, b)), -c) : add.round(ODD ? fma_odd<C>(a, b, -c) : vfma(a, b, -c));
            const V t = add.add(s, y);
            c = add.sub(add.sub(t, s), y);
            s = t;
            return;
        }
        V q = product(a, b);
        if (rounds) q = mul.round(q);
        const V x = add.round(q), t = add.add(s, x);
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

    // False: the wager that no sum comes near the ends of the format is lost.
    template <int ROWS> static INL_MEMBER bool rows(const Tile& tile, int row, const Const<C>& ka, const Const<C>& km, bool rounds,
                                                    const Wager& wager) {
        typedef typename C::T T;
        const T *a = (const T*)tile.a + row, *b = (const T*)tile.b;
        T* out = (T*)tile.c + row * NV * C::L;
        const Rounded<C, KIND, ODD> add = {ka}, mul = {km};
        V s[ROWS][NV] = {}, c[ROWS][NV] = {};
        const V most = splat<C>((T)wager.most);
        VI lost = {};
        const int64_t segment = KIND == SUB ? wager.steps : tile.k;
        for (int64_t k0 = 0; k0 < tile.k; k0 += segment) {
            const int64_t end = k0 + segment < tile.k ? k0 + segment : tile.k;
            for (int64_t k = k0; k < end; ++k) {
                V bv[NV];
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; ++i) {
                    const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                    for (int j = 0; j < NV; ++j) step(av, bv[j], s[i][j], c[i][j], add, mul, rounds);
                }
            }
            if (KIND == SUB)
                for (int i = 0; i < ROWS; ++i)
                    for (int j = 0; j < NV; ++j) lost |= ~(VI)((V)((VU)s[i][j] & ~C::SIGN) < most);  // NaN is lost, too
        }
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j)
                store(out + (i * NV + j) * C::L, METHOD == KAHAN || tile.k == 0 ? s[i][j] : add.add(s[i][j], c[i][j]));
        for (int l = 0; l < C::L; ++l)
            if (lost[l]) return false;
        return true;
    }

    static bool run(const Tile& t, const Wager& wager, bool rounds) {
        enum { BLOCK = KIND == GENERAL ? 1 : WIDTH == 64 || ISA_NEON ? 4 : 2 };  // a step of GENERAL keeps the units busy by itself
        const Const<C> add = Const<C>::make(*t.add), mul = Const<C>::make(*t.mul);
        int row = 0;
        if (BLOCK > 1)
            for (; row + BLOCK <= t.rows; row += BLOCK)
                if (!rows<BLOCK>(t, row, add, mul, rounds, wager)) return false;
        for (; row < t.rows; ++row)
            if (!rows<1>(t, row, add, mul, rounds, wager)) return false;
        return true;
    }
};

template <class C, int METHOD> static CompensatedFn compensated_of(int kind, bool odd) {
    if (kind == NONE) return Compensated<C, METHOD, NONE, false>::run;
    if (odd && kind <= SUB) return Compensated<C, METHOD, SUB, true>::run;
    return odd ? Compensated<C, METHOD, GENERAL, true>::run : Compensated<C, METHOD, GENERAL, false>::run;
}

template <class C> static CompensatedFn compensated_method(int method, int kind, bool odd) {
    switch (method) {
        case KAHAN: return compensated_of<C, KAHAN>(kind, odd);
        case NEUMAIER: return compensated_of<C, NEUMAIER>(kind, odd);
        case TWO_SUM: return compensated_of<C, TWO_SUM>(kind, odd);
        default: return compensated_of<C, FAST_TWO_SUM>(kind, odd);
    }
}

}  // namespace gemmsim::NS
