// The step of a compensated sum: a register S and its correction C. R rounds every operation to the format.
//   kahan         y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t;                    result S
//   neumaier      x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t;                result R(S + C)
//   two_sum       x = R(q); t = R(S + x); z = R(t - S);
//                 C = R(C + R(R(S - R(t - z)) + R(x - z))); S = t;                            result R(S + C)
//   fast_two_sum  x = R(q); t = R(S + x); C = R(C + R(x - R(t - S))); S = t;                  result R(S + C)
// q is the exact product or the rounded one. hi is the one of S and x with the larger magnitude, S on a tie; lo is the other one.
#pragma once
#include "tiles/gemm_kernel.h"
#include "tiles/round_product.h"

namespace gemmsim::NS {

// Operations of a step that the formulas do not number. NoBits stands for the random bits of operations that have none.
enum Operation : int { PRODUCT_ROUNDING = 8, LAST_SUM = 9 };
template <class C> struct NoBits {
    template <int OP> INL_MEMBER typename C::VU of() const { return typename C::VU{}; }
};

// The operations of a step and their roundings.
template <class C, Rounding KIND, bool ODD, class Bits = NoBits<C>> struct Rounded {
    typedef typename C::V V;
    const Const<C>& k;
    const Bits bits = Bits();
    template <int OP> INL_MEMBER V round(V s) const { return round_to<C, KIND>(s, k, bits.template of<OP>()); }
    // the sum of two registers
    template <int OP> INL_MEMBER V add(V x, V y) const {
        if (KIND == Rounding::SUBNORMALS) return round_to<C, Rounding::NORMAL>(x + y, k, (typename C::VU){});
        return round<OP>(ODD && KIND != Rounding::FLUSH ? add_odd<C>(x, y) : x + y);
    }
    template <int OP> INL_MEMBER V sub(V x, V y) const { return add<OP>(x, -y); }
    template <int OP> INL_MEMBER V add_product(V q, V y) const { return round<OP>(ODD ? add_odd<C>(q, y) : q + y); }
    template <int OP> INL_MEMBER V fused(V a, V b, V c) const { return round<OP>(ODD ? fma_odd<C>(a, b, c) : vfma(a, b, c)); }
    static INL_MEMBER V product(V a, V b) { return ODD ? mul_odd<C>(a, b) : a * b; }
    // Whether products of any operands are rounded once, from their exact values (round_product.h).
    static constexpr bool ONCE = (KIND == Rounding::SUBNORMALS && (ISA_DIRECTED || ISA_MODES)) || (KIND == Rounding::FLUSH && ISA_MODES);
    INL_MEMBER V rounded_product(V a, V b) const {
#if ISA_DIRECTED || ISA_MODES
        if constexpr (KIND == Rounding::SUBNORMALS) return round_product<C, RunsRounding::SUBNORMALS, false>(a, b, k);
        else return product_magic<C, RunsRounding::CLAMPED, true, false>(a, b, k);
#else
        return a * b;
#endif
    }
};

// Load and store the sums and corrections of ROWS rows between two parts of a segment (Tile::rest has the corrections).
template <class C, int ROWS>
INL void get_sums(const typename C::T* out, const typename C::T* rest, typename C::V (&s)[ROWS][NV], typename C::V (&c)[ROWS][NV]) {
    typedef typename C::V V;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            s[i][j] = load<V>(out + (i * NV + j) * C::L);
            c[i][j] = load<V>(rest + (i * NV + j) * C::L);
        }
}
template <class C, int ROWS> INL void put_sums(const typename C::V (&s)[ROWS][NV], const typename C::V (&c)[ROWS][NV], typename C::T* out,
                                               typename C::T* rest) {
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) {
            store(out + (i * NV + j) * C::L, s[i][j]);
            store(rest + (i * NV + j) * C::L, c[i][j]);
        }
}

// The steps. `Ops` has the operations of Rounded.
template <class C, int METHOD> struct CompensatedStep {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;

    // The operation with the product: y of Kahan's step, x of the others. `rounds`: the product is rounded by itself, by `mul`.
    template <class Ops> static INL_MEMBER V term(V a, V b, V c, const Ops& add, const Ops& mul, bool rounds) {
        if constexpr (METHOD == KAHAN) {
            if (!rounds) return add.template fused<0>(a, b, -c);
            if constexpr (Ops::ONCE) return add.template add_product<0>(mul.rounded_product(a, b), -c);
            else return add.template add_product<0>(mul.template round<PRODUCT_ROUNDING>(mul.product(a, b)), -c);
        } else if constexpr (Ops::ONCE) {
            return rounds ? add.template round<0>(mul.rounded_product(a, b)) : add.rounded_product(a, b);
        } else {
            const V q = add.product(a, b);
            return add.template round<0>(rounds ? mul.template round<PRODUCT_ROUNDING>(q) : q);
        }
    }
    template <class Ops> static INL_MEMBER void finish(V x, V& s, V& c, const Ops& add) {
        const V t = add.template add<1>(s, x);
        if (METHOD == KAHAN) {
            c = add.template sub<3>(add.template sub<2>(t, s), x);
            s = t;
            return;
        }
        if (METHOD == NEUMAIER) {
            const VI larger = (VI)((VU)s & ~C::SIGN) >= (VI)((VU)x & ~C::SIGN);
            const V hi = larger ? s : x, lo = larger ? x : s;
            c = add.template add<4>(c, add.template add<3>(add.template sub<2>(hi, t), lo));
        } else if (METHOD == TWO_SUM) {
            const V z = add.template sub<2>(t, s), lost = add.template sub<4>(s, add.template sub<3>(t, z));
            c = add.template add<7>(c, add.template add<6>(lost, add.template sub<5>(x, z)));
        } else {
            c = add.template add<4>(c, add.template sub<3>(x, add.template sub<2>(t, s)));
        }
        s = t;
    }
};

}  // namespace gemmsim::NS
