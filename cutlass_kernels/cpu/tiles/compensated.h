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
//
// FTZ: nearest even, with or without subnormals, whatever becomes of overflows; data are finite (rounders.h). Sums of two registers are
// the carrier's nearest ones by lemma A: what is below 2^emin is exact in it. SPECIAL: the same of float panels in double lanes, for
// formats of more than 11 bits and those whose ends float lanes do not reach.
//
// By modes, float lanes round what has a product in it from the nearest sum, too, and watch it (watched.h); where that may be
// wrong, it is made in double lanes. So it takes any operands there, and LANES is all of GENERAL in double lanes.
//
// FAST, FAST_CLAMP and RANDOM: compensated_modes.h.
#pragma once
#include "tiles/gemm_kernel.h"
#include "tiles/halves.h"
#include "tiles/watch.h"

namespace gemmsim::NS {

// Operations of a step beside those with numbers, and what stands for the random bits of any where there are none.
enum Operation : int { PRODUCT_ROUNDING = 8, LAST_SUM = 9 };
template <class C> struct NoBits {
    template <int OP> INL_MEMBER typename C::VU of() const { return typename C::VU{}; }
};

// Operations of a step, and their roundings.
template <class C, int KIND, bool ODD, class Bits = NoBits<C>> struct Rounded {
    typedef typename C::V V;
    const Const<C>& k;
    const Bits bits = Bits();
    template <int OP> INL_MEMBER V round(V s) const { return round_to<C, KIND>(s, k, bits.template of<OP>()); }
    // of two registers
    template <int OP> INL_MEMBER V add(V x, V y) const {
        if (KIND == SUB) return round_to<C, PLAIN>(x + y, k, (typename C::VU){});
        return round<OP>(ODD && KIND != FTZ ? add_odd<C>(x, y) : x + y);
    }
    template <int OP> INL_MEMBER V sub(V x, V y) const { return add<OP>(x, -y); }
    template <int OP> INL_MEMBER V add_product(V q, V y) const { return round<OP>(ODD ? add_odd<C>(q, y) : q + y); }
    template <int OP> INL_MEMBER V fused(V a, V b, V c) const { return round<OP>(ODD ? fma_odd<C>(a, b, c) : vfma(a, b, c)); }
    static INL_MEMBER V product(V a, V b) { return ODD ? mul_odd<C>(a, b) : a * b; }
};

// The steps; `Ops` as Rounded.
template <class C, int METHOD> struct CompensatedStep {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;

    // What has the product in it: y of Kahan's step, else x. `rounds`: the product has a rounding of its own, `mul`.
    template <class Ops> static INL_MEMBER V term(V a, V b, V c, const Ops& add, const Ops& mul, bool rounds) {
        if (METHOD == KAHAN)
            return rounds ? add.template add_product<0>(mul.template round<PRODUCT_ROUNDING>(mul.product(a, b)), -c)
                          : add.template fused<0>(a, b, -c);
        const V q = add.product(a, b);
        return add.template round<0>(rounds ? mul.template round<PRODUCT_ROUNDING>(q) : q);
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

template <class C, int METHOD, int KIND, bool ODD> struct Compensated : CompensatedStep<C, METHOD> {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef CompensatedStep<C, METHOD> Step;

#if ISA_MODES
    static constexpr bool CAN_WATCH = sizeof(typename C::T) == 4 && KIND == SUB && ODD;

    // `x`, made from nearest values, again where these are on midpoints or below 2^emin and not zero.
    static __attribute__((noinline)) V again(V a, V b, V c, V x, const Watch<C>& w, const Const<C64>& wide) {
        const V n = METHOD == KAHAN ? vfma(a, b, -c) : a * b;
        if (none_set((VI)(w.on_midpoint(n) | (w.below_normal(n) & (VI)(n != V{}))))) return x;
        return in_halves(a, b, METHOD == KAHAN ? -c : V{}, VU{}, [&](C64::V p, C64::V q, C64::V r, C64::VU) __attribute__((always_inline)) {
            return round_to<C64, SUB>(METHOD == KAHAN ? fma_odd<C64>(p, q, r) : p * q, wide, C64::VU{});
        });
    }
    // What has a product in it, in double lanes, where products are exact.
    static INL_MEMBER V term_in_halves(V a, V b, V c, const Rounded<C64, FTZ, true>& add, const Rounded<C64, FTZ, true>& mul, bool rounds) {
        typedef CompensatedStep<C64, METHOD> Wide;
        return in_halves(a, b, c, VU{}, [&](C64::V p, C64::V q, C64::V r, C64::VU) __attribute__((always_inline)) {
            return Wide::term(p, q, r, add, mul, rounds);
        });
    }
    // A step of the rows of a group, whose operands are `av` and `bv`.
    template <int GROUP> static INL_MEMBER void watched(const V (&av)[GROUP], const V (&bv)[NV], V (*s)[NV], V (*c)[NV],
                                                        const Rounded<C, KIND, ODD>& add, const Watch<C>& w, const Const<C64>& wide) {
        V x[GROUP][NV];
        Seen<C, true, true, false> seen;
#pragma GCC unroll 2
        for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const V n = METHOD == KAHAN ? vfma(av[i], bv[j], -c[i][j]) : av[i] * bv[j];
                seen.look(n, w, i + j == 0);
                x[i][j] = w.round(n);
            }
        if (__builtin_expect(seen.found(w), 0))
            for (int i = 0; i < GROUP; ++i)
                for (int j = 0; j < NV; ++j) x[i][j] = again(av[i], bv[j], c[i][j], x[i][j], w, wide);
#pragma GCC unroll 2
        for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) Step::finish(x[i][j], s[i][j], c[i][j], add);
    }
#endif

    // False: the wager that no sum comes near the ends of the format is lost. WATCHES: what has a product in it; then `rounds` is not.
    template <int ROWS, bool WATCHES> static INL_MEMBER bool rows(const Tile& tile, int row, const Const<C>& ka, const Const<C>& km,
                                                                  bool rounds, const Wager& wager) {
        typedef typename C::T T;
        const T *a = (const T*)tile.a + row, *b = (const T*)tile.b;
        T* out = (T*)tile.c + row * NV * C::L;
        const Rounded<C, KIND, ODD> add = {ka}, mul = {km};
        V s[ROWS][NV] = {}, c[ROWS][NV] = {};
        const V most = splat<C>((T)wager.most);
        VI lost = {};
#if ISA_MODES
        const Watch<C> watch(ka, *tile.add);
        const Const<C64> wide = Const<C64>::make(*tile.add), wide_mul = Const<C64>::make(*tile.mul);
        const Rounded<C64, FTZ, true> add_wide = {wide}, mul_wide = {wide_mul};
#endif
        const int64_t segment = KIND == SUB ? wager.steps : tile.k;
        for (int64_t k0 = 0; k0 < tile.k; k0 += segment) {
            const int64_t end = k0 + segment < tile.k ? k0 + segment : tile.k;
            for (int64_t k = k0; k < end; ++k) {
                V bv[NV];
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#if ISA_MODES
                if constexpr (WATCHES) {
                    constexpr int GROUP = ROWS < 2 ? 1 : 2;
#pragma GCC unroll 4
                    for (int first = 0; first < ROWS; first += GROUP) {
                        V av[GROUP];
                        for (int i = 0; i < GROUP; ++i) av[i] = splat<C>(a[k * MR + first + i]);
                        watched<GROUP>(av, bv, s + first, c + first, add, watch, wide);
                    }
                    continue;
                }
#endif
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; ++i) {
                    const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                    for (int j = 0; j < NV; ++j) {
                        V x;
#if ISA_MODES
                        if constexpr (KIND == FTZ && sizeof(T) == 4) x = term_in_halves(av, bv[j], c[i][j], add_wide, mul_wide, rounds);
                        else
#endif
                            x = Step::term(av, bv[j], c[i][j], add, mul, rounds);
                        Step::finish(x, s[i][j], c[i][j], add);
                    }
                }
            }
            if (KIND == SUB)
                for (int i = 0; i < ROWS; ++i)
                    for (int j = 0; j < NV; ++j) lost |= ~(VI)((V)((VU)s[i][j] & ~C::SIGN) < most);  // NaN is lost, too
        }
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j)
                store(out + (i * NV + j) * C::L, METHOD == KAHAN || tile.k == 0 ? s[i][j] : add.template add<LAST_SUM>(s[i][j], c[i][j]));
        for (int l = 0; l < C::L; ++l)
            if (lost[l]) return false;
        return true;
    }

    template <int BLOCK, bool WATCHES> static INL_MEMBER bool all_rows(const Tile& t, const Wager& wager, bool rounds) {
        const Const<C> add = Const<C>::make(*t.add), mul = Const<C>::make(*t.mul);
        int row = 0;
        if (BLOCK > 1)
            for (; row + BLOCK <= t.rows; row += BLOCK)
                if (!rows<BLOCK, WATCHES>(t, row, add, mul, rounds, wager)) return false;
        for (; row < t.rows; ++row)
            if (!rows<1, WATCHES>(t, row, add, mul, rounds, wager)) return false;
        return true;
    }

    static bool run(const Tile& t, const Wager& wager, bool rounds) {
#if ISA_MODES
        if constexpr (CAN_WATCH)
            if (!rounds) return all_rows<4, true>(t, wager, false);
#endif
        return all_rows < KIND == GENERAL ? 1
               : WIDTH == 64 || ISA_NEON  ? 4
                                          : 2,
               false > (t, wager, rounds);  // a step of GENERAL keeps the units busy by itself
    }
};

#if ISA_DIRECTED || ISA_MODES
// Float panels, all of GENERAL or FTZ in double lanes.
template <int METHOD, int KIND> static bool compensated_in_double_lanes(const Tile& t, const Wager&, bool rounds) {
    typedef CompensatedStep<C64, METHOD> Wide;
    constexpr int VECTORS = 2 * NV;
    const Const<C64> add = Const<C64>::make(*t.add), mul = Const<C64>::make(*t.mul);
    const Rounded<C64, KIND, true> sum = {add}, product = {mul};
    for (int row = 0; row < t.rows; ++row) {
        C64::V s[VECTORS] = {}, c[VECTORS] = {};
        for (int64_t k = 0; k < t.k; ++k) {
            const C64::V a = splat<C64>(((const float*)t.a)[k * MR + row]);
            for (int j = 0; j < VECTORS; ++j) {
                const HalfFloats b = load<HalfFloats>((const float*)t.b + (k * VECTORS + j) * C64::L);
                Wide::finish(Wide::term(a, widened(b), c[j], sum, product, rounds), s[j], c[j], sum);
            }
        }
        for (int j = 0; j < VECTORS; ++j) {
            const C64::V r = METHOD == KAHAN || t.k == 0 ? s[j] : sum.template add<LAST_SUM>(s[j], c[j]);
            store((float*)t.c + (row * VECTORS + j) * C64::L, __builtin_convertvector(r, HalfFloats));
        }
    }
    return true;
}
#endif

template <class C, int METHOD> static CompensatedFn compensated_of(int kind, bool odd) {
#if ISA_DIRECTED || ISA_MODES
    if (kind == LANES) return compensated_in_double_lanes<METHOD, GENERAL>;
    if (kind == SPECIAL) return compensated_in_double_lanes<METHOD, FTZ>;
    if (kind == FTZ) return Compensated<C, METHOD, FTZ, true>::run;
#endif
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
