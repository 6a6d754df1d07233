// Compensated sums of one tile (formulas: compensated_step.h). choose_compensated (kernel_choice_compensated.h) chooses the kind.
//
// NATIVE: the carrier is the format.
//
// SUBNORMALS: speculative. It assumes that nothing overflows, and its loop does nothing about overflows. S is checked after every few steps.
// Between two checks S cannot grow past the format (make_speculation in kernel_choice_compensated.h). Where a check fails, the
// fallback (Choice::fallback, such as ANY_MODE) computes the tile again. Sums of two registers are rounded from the carrier's nearest
// sum (lemma A of bounds.h). They are multiples of the smallest quantum, so they never underflow. Operations with a product are
// rounded from a value that was rounded to odd. Signs of zeros get lost on the way, which does no harm: S starts as +0 and no exact
// sum makes it -0, so the result is never -0.
//
// FLUSH: nearest even of finite data, with or without subnormals and with any policy of overflow (rounders.h). Sums of two registers
// are the carrier's nearest sums by lemma A, because what is below 2^emin is exact in the carrier.
// With CompensatedRounding::wide, FLUSH and ANY_MODE compute float panels in double lanes. FLUSH serves formats of more than 11 bits and
// formats whose ends float lanes do not reach in this way.
//
// Where a processor rounds in one direction by a mode (ISA_MODES), float lanes of SUBNORMALS round operations with a product from the
// nearest value, too, and check it (checks.h). Where that value may be wrong, double lanes compute the operation again. Short
// products would make that frequent. For these, for double panels and for FLUSH, Kahan's q - C is computed in two modes
// (compensated_mode_switch.h). Products alone are rounded once (round_product.h). So all these kernels take any operands.
//
// DIRECTED, DIRECTED_CLAMP and STOCHASTIC: compensated_modes.h.
#pragma once
#include "tiles/compensated/compensated_step.h"
#include "tiles/compensated/compensated_mode_switch.h"
#include "tiles/stochastic/float64_lanes.h"
#include "tiles/nearest/checks.h"

namespace gemmsim::NS {

template <class C, int METHOD, Rounding KIND, bool ODD> struct Compensated : CompensatedStep<C, METHOD> {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef CompensatedStep<C, METHOD> Step;

#if ISA_MODES
    static constexpr bool CAN_CHECK = sizeof(typename C::T) == 4 && KIND == Rounding::SUBNORMALS && ODD;

    // Returns `x`, which was rounded from nearest values, or computes it again in double lanes. The latter happens if any nearest
    // value is on a midpoint, or below 2^emin and not zero.
    static __attribute__((noinline)) V recompute(V a, V b, V c, V x, const CheckConstants<C>& w, const Const<C64>& wide) {
        const V n = METHOD == KAHAN ? vfma(a, b, -c) : a * b;
        if (none_set((VI)(w.on_midpoint(n) | (w.below_normal(n) & (VI)(n != V{}))))) return x;
        return in_two_halves(
            a, b, METHOD == KAHAN ? -c : V{}, VU{}, [&](C64::V p, C64::V q, C64::V r, C64::VU) __attribute__((always_inline)) {
                return round_to<C64, Rounding::SUBNORMALS>(METHOD == KAHAN ? fma_odd<C64>(p, q, r) : p * q, wide, C64::VU{});
            });
    }
    // One step of a group of rows, whose operands are `av` and `bv`.
    template <int GROUP>
    static INL_MEMBER void checked_terms(const V (&av)[GROUP], const V (&bv)[NV], V (*s)[NV], V (*c)[NV], const Rounded<C, KIND, ODD>& add,
                                         const CheckConstants<C>& w, const Const<C64>& wide) {
        V x[GROUP][NV];
        Seen<C, true, true, false> seen;
#pragma GCC unroll 2
        for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const V n = METHOD == KAHAN ? vfma(av[i], bv[j], -c[i][j]) : av[i] * bv[j];
                seen.check(n, w, i + j == 0);
                x[i][j] = w.round(n);
            }
        if (__builtin_expect(seen.found(w), 0))
            for (int i = 0; i < GROUP; ++i)
                for (int j = 0; j < NV; ++j) x[i][j] = recompute(av[i], bv[j], c[i][j], x[i][j], w, wide);
#pragma GCC unroll 2
        for (int i = 0; i < GROUP; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) Step::finish(x[i][j], s[i][j], c[i][j], add);
    }
#endif

    // Computes ROWS rows. False: a check of S failed, and a sum may be near the ends of the format.
    // CHECKS: operations with a product are rounded from nearest values, which are checked; `rounds` is then false.
    template <int ROWS, bool CHECKS> static INL_MEMBER bool rows(const Tile& tile, int row, const Const<C>& ka, const Const<C>& km,
                                                                 bool rounds, const Speculation& speculation) {
        typedef typename C::T T;
        const T *a = (const T*)tile.a + row, *b = (const T*)tile.b;
        T *out = (T*)tile.c + row * NV * C::L, *rest = (T*)tile.rest + row * NV * C::L;
        const Rounded<C, KIND, ODD> add = {ka}, mul = {km};
        V s[ROWS][NV] = {}, c[ROWS][NV] = {};
        if (__builtin_expect(!tile.begins, 0)) get_sums<C, ROWS>(out, rest, s, c);
        const V most = splat<C>((T)speculation.most);
        VI lost = {};
#if ISA_MODES
        const CheckConstants<C> checks(ka, *tile.add);
        const Const<C64> wide = Const<C64>::make(*tile.add);
#endif
        const int64_t segment = KIND == Rounding::SUBNORMALS ? speculation.steps : tile.k;
        for (int64_t k0 = 0; k0 < tile.k; k0 += segment) {
            const int64_t end = k0 + segment < tile.k ? k0 + segment : tile.k;
            for (int64_t k = k0; k < end; ++k) {
                V bv[NV];
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#if ISA_MODES
                if constexpr (CHECKS) {
                    constexpr int GROUP = ROWS < 2 ? 1 : 2;
#pragma GCC unroll 4
                    for (int first = 0; first < ROWS; first += GROUP) {
                        V av[GROUP];
                        for (int i = 0; i < GROUP; ++i) av[i] = splat<C>(a[k * MR + first + i]);
                        checked_terms<GROUP>(av, bv, s + first, c + first, add, checks, wide);
                    }
                    continue;
                }
#endif
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; ++i) {
                    const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                    for (int j = 0; j < NV; ++j) { Step::finish(Step::term(av, bv[j], c[i][j], add, mul, rounds), s[i][j], c[i][j], add); }
                }
            }
            if (KIND == Rounding::SUBNORMALS)
                for (int i = 0; i < ROWS; ++i)
                    for (int j = 0; j < NV; ++j) lost |= ~(VI)((V)((VU)s[i][j] & ~C::SIGN) < most);  // a NaN is lost, too
        }
        if (__builtin_expect(!tile.ends, 0)) put_sums<C, ROWS>(s, c, out, rest);
        for (int i = 0; tile.ends && i < ROWS; ++i)
            for (int j = 0; j < NV; ++j)
                store(out + (i * NV + j) * C::L, METHOD == KAHAN || tile.k == 0 ? s[i][j] : add.template add<LAST_SUM>(s[i][j], c[i][j]));
        for (int l = 0; l < C::L; ++l)
            if (lost[l]) return false;
        return true;
    }

    template <int BLOCK, bool CHECKS> static INL_MEMBER bool all_rows(const Tile& t, const Speculation& speculation, bool rounds) {
        const Const<C> add = Const<C>::make(*t.add), mul = Const<C>::make(*t.mul);
        int row = 0;
        if (BLOCK > 1)
            for (; row + BLOCK <= t.rows; row += BLOCK)
                if (!rows<BLOCK, CHECKS>(t, row, add, mul, rounds, speculation)) return false;
        for (; row < t.rows; ++row)
            if (!rows<1, CHECKS>(t, row, add, mul, rounds, speculation)) return false;
        return true;
    }

    static bool run(const Tile& t, const Speculation& speculation, bool rounds) {
        constexpr int BLOCK = KIND == Rounding::ANY_MODE ? 1 : WIDTH == 64 || ISA_NEON ? 4 : 2;  // one row of ANY_MODE keeps the units busy
#if ISA_MODES
        if constexpr (CAN_CHECK)
            if (!rounds && (METHOD != KAHAN || !t.exact_products)) return all_rows<4, true>(t, speculation, false);
        if constexpr (METHOD == KAHAN && (KIND == Rounding::SUBNORMALS || KIND == Rounding::FLUSH))
            if (!rounds) return kahan_in_two_modes<C, KIND, typename C::T>(t, speculation);
#endif
        return all_rows<BLOCK, false>(t, speculation, rounds);
    }
};

#if ISA_DIRECTED || ISA_MODES
// Float panels, with all operations of kind ANY_MODE or FLUSH in double lanes.
template <int METHOD, Rounding KIND> static bool compensated_in_double_lanes(const Tile& t, const Speculation& speculation, bool rounds) {
#if ISA_MODES
    if (METHOD == KAHAN && KIND == Rounding::FLUSH && !rounds) return kahan_in_two_modes<C64, Rounding::FLUSH, float>(t, speculation);
#else
    (void)speculation;
#endif
    typedef CompensatedStep<C64, METHOD> Wide;
    constexpr int VECTORS = 2 * NV;
    const Const<C64> add = Const<C64>::make(*t.add), mul = Const<C64>::make(*t.mul);
    const Rounded<C64, KIND, true> sum = {add}, product = {mul};
    for (int row = 0; row < t.rows; ++row) {
        C64::V s[VECTORS] = {}, c[VECTORS] = {};
        float *const out = (float*)t.c + row * VECTORS * C64::L, *const rest = (float*)t.rest + row * VECTORS * C64::L;
        for (int j = 0; !t.begins && j < VECTORS; ++j) {
            s[j] = widened(load<HalfFloats>(out + j * C64::L));
            c[j] = widened(load<HalfFloats>(rest + j * C64::L));
        }
        for (int64_t k = 0; k < t.k; ++k) {
            const C64::V a = splat<C64>(((const float*)t.a)[k * MR + row]);
            for (int j = 0; j < VECTORS; ++j) {
                const HalfFloats b = load<HalfFloats>((const float*)t.b + (k * VECTORS + j) * C64::L);
                Wide::finish(Wide::term(a, widened(b), c[j], sum, product, rounds), s[j], c[j], sum);
            }
        }
        for (int j = 0; j < VECTORS; ++j) {
            const C64::V r = METHOD == KAHAN || t.k == 0 || !t.ends ? s[j] : sum.template add<LAST_SUM>(s[j], c[j]);
            store(out + j * C64::L, __builtin_convertvector(r, HalfFloats));
            if (!t.ends) store(rest + j * C64::L, __builtin_convertvector(c[j], HalfFloats));
        }
    }
    return true;
}
#endif

template <class C, int METHOD> static CompensatedFn compensated_of(CompensatedRounding how, bool odd) {
    const Rounding kind = how.kind;
#if ISA_DIRECTED || ISA_MODES
    if (how.wide && kind == Rounding::FLUSH) return compensated_in_double_lanes<METHOD, Rounding::FLUSH>;
    if (how.wide) return compensated_in_double_lanes<METHOD, Rounding::ANY_MODE>;
    if (kind == Rounding::FLUSH) return Compensated<C, METHOD, Rounding::FLUSH, true>::run;
#endif
    if (kind == Rounding::NATIVE) return Compensated<C, METHOD, Rounding::NATIVE, false>::run;
    if (odd && kind <= Rounding::SUBNORMALS) return Compensated<C, METHOD, Rounding::SUBNORMALS, true>::run;
    return odd ? Compensated<C, METHOD, Rounding::ANY_MODE, true>::run : Compensated<C, METHOD, Rounding::ANY_MODE, false>::run;
}

template <class C> static CompensatedFn compensated_method(int method, CompensatedRounding how, bool odd) {
    switch (method) {
        case KAHAN: return compensated_of<C, KAHAN>(how, odd);
        case NEUMAIER: return compensated_of<C, NEUMAIER>(how, odd);
        case TWO_SUM: return compensated_of<C, TWO_SUM>(how, odd);
        default: return compensated_of<C, FAST_TWO_SUM>(how, odd);
    }
}

}  // namespace gemmsim::NS
