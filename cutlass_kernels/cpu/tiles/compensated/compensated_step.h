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

// The registers S and corrections C of ROWS rows of a tile, which may have a part of a segment's terms. Tile::rest has the corrections
// between two parts.
template <class C, int METHOD, int ROWS> struct CompensatedRows {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef RegisterBlock<C, ROWS> Block;
    const Tile& t;
    const T *const a, *const b;
    T *const out, *const rest;
    Block s = {}, c = {};

    INL_MEMBER CompensatedRows(const Tile& tile, int row)
        : t(tile), a((const T*)t.a + row), b((const T*)t.b), out((T*)t.c + row * NV * C::L), rest((T*)t.rest + row * NV * C::L) {
        if (__builtin_expect(t.begins, 1)) return;
        s.get(out);
        c.get(rest);
    }
    static INL_MEMBER VI below(V x, V most) { return (VI)((V)((VU)x & ~C::SIGN) < most); }  // a NaN is not
    // Calls term(k, b of term k) for all terms, and check(i, j) for all vectors after every `steps` terms and after the last one.
    template <class Term, class Check> INL_MEMBER void add(int64_t steps, const Term& term, const Check& check) {
        for (int64_t first = 0; first < t.k; first += steps) {
            const int64_t end = first + steps < t.k ? first + steps : t.k;
            for (int64_t k = first; k < end; ++k) {
                V right[NV];
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) right[j] = load<V>(b + (k * NV + j) * C::L);
                term(k, right);
            }
            for (int i = 0; i < ROWS; ++i)
                for (int j = 0; j < NV; ++j) check(i, j);
        }
    }
    // Stores the result, for which last(i, j) is R(S + C), or S and C. Returns whether nothing is lost. `lost` is no member, so that it has
    // a CPU register of its own.
    template <class Last> INL_MEMBER bool finish(VI lost, const Last& last) const {
        if (__builtin_expect(!t.ends, 0)) {
            s.put(out);
            c.put(rest);
        } else
            for (int i = 0; i < ROWS; ++i)
                for (int j = 0; j < NV; ++j) store(out + (i * NV + j) * C::L, last(i, j));
        for (int l = 0; l < C::L; ++l)
            if (lost[l]) return false;
        return true;
    }
    // Whether the result is S alone.
    INL_MEMBER bool without_correction() const { return METHOD == KAHAN || t.k == 0; }
};

// make.template of<METHOD>() for a method that is known at run time.
template <class Make> CompensatedFn by_method(int method, const Make& make) {
    switch (method) {
        case KAHAN: return make.template of<KAHAN>();
        case NEUMAIER: return make.template of<NEUMAIER>();
        case TWO_SUM: return make.template of<TWO_SUM>();
        default: return make.template of<FAST_TWO_SUM>();
    }
}

}  // namespace gemmsim::NS
