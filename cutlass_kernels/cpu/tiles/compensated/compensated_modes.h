// Compensated sums in one mode other than nearest even (formulas: compensated_step.h).
//
// DIRECTED: speculative, as SUBNORMALS is. Operations with a product are rounded in the mode's direction (directed.h). Sums of two registers are
// multiples of the smallest quantum, below 2^emin as well as above. So they are truncated to the format's bits whatever their exponent
// (Truncation in directed_kernel.h). The correction is checked, too, since what is lost in one direction does not cancel in it.
// DIRECTED_CLAMP: all operations are rounded as those with a product are, with or without subnormals and with any policy of overflow.
// Data are finite.
// STOCHASTIC: any data, rounded in integers. By modes, float panels are computed in double lanes, where products are exact.
#pragma once
#include "tiles/compensated/compensated.h"
#include "tiles/directed/directed_kernel.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// The random bits of a step's operations: draw number kk of each operation's Philox call. In double lanes, the words are in the low
// halves of lanes.
template <class C, int ROWS> struct StepBits {
    const Draws<C, ROWS>* draws;
    int i, j, word, left, right;

    INL_MEMBER StepBits(const Draws<C, ROWS>* all, int row, int vector, int64_t at, int rbits) : draws(all), i(row), j(vector) {
        const int lane = 8 * sizeof(typename C::T), kk = (int)(at % (rbits > 16 ? 4 : 8));
        word = rbits > 16 ? kk : kk >> 1;
        left = lane - (rbits > 16 || kk & 1 ? 32 : 16);
        right = lane - rbits;
    }
    template <int OP> INL_MEMBER typename C::VU of() const { return (draws[OP].w[i][j][word] << left) >> right; }
};

// The operations of Rounded (compensated_step.h), in one direction.
template <class C, int MODE, bool CLAMP, class Bits> struct RoundedInMode {
    typedef typename C::V V;
    typedef typename C::VI VI;
    const Const<C>& k;
    const Truncation<C>& truncation;
    const Bits bits;
    template <int OP> INL_MEMBER V round(V s) const {
        const V r = round_directed<C, MODE, CLAMP>(s, k, bits.template of<OP>());
        // Rounding up, no overflow gives -infinity: it comes from an infinity in the data. Rounding down, the same holds of +infinity.
        if (CLAMP && MODE == RU) return select<C>((VI)(s == -infinity()), k.inf_neg, r);
        if (CLAMP && MODE == RD) return select<C>((VI)(s == infinity()), k.inf_pos, r);
        return r;
    }
    static INL_MEMBER V infinity() { return (V)splat_u<C>(C::EXP); }
    template <int OP> INL_MEMBER V add(V x, V y) const {
        if (CLAMP) return round<OP>(add_directed<C, MODE>(x, y));
        return truncation.template round<MODE>(add_directed<C, MODE>(x, y), bits.template of<OP>());
    }
    template <int OP> INL_MEMBER V sub(V x, V y) const { return add<OP>(x, -y); }
    template <int OP> INL_MEMBER V add_product(V q, V y) const { return round<OP>(add_directed<C, MODE>(q, y)); }
    template <int OP> INL_MEMBER V fused(V a, V b, V c) const { return round<OP>(fma_directed<C, MODE>(a, b, c)); }
    static constexpr bool ONCE = false;
    static INL_MEMBER V product(V a, V b) { return mul_directed<C, MODE>(a, b); }
};

constexpr int operations(int method) { return method == KAHAN ? 4 : method == TWO_SUM ? 8 : 5; }

// MODE: the mode of DIRECTED and DIRECTED_CLAMP. For STOCHASTIC it is SR, though some of its casts may have other modes.
template <class C, int METHOD, Rounding KIND, int MODE, bool ODD, int ROWS> struct CompensatedInMode {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    typedef CompensatedStep<C, METHOD> Step;
    static constexpr bool DRAWS = MODE == SR, OWN = KIND != Rounding::STOCHASTIC;
    typedef std::conditional_t<DRAWS, StepBits<C, ROWS>, NoBits<C>> Bits;
    typedef std::conditional_t<OWN, RoundedInMode<C, MODE, KIND == Rounding::DIRECTED_CLAMP, Bits>,
                               Rounded<C, Rounding::STOCHASTIC, ODD, Bits>>
        Ops;

    const Tile& tile;
    const int row;
    const Const<C>&ka, &km;
    const bool rounds;
    const Truncation<C> truncation_a, truncation_m;
    const int per;
    Draws<C, DRAWS ? ROWS : 1> draws[DRAWS ? LAST_SUM + 1 : 1];

    CompensatedInMode(const Tile& t, int first, const Const<C>& add, const Const<C>& mul, bool mul_rounds)
        : tile(t), row(first), ka(add), km(mul), rounds(mul_rounds), truncation_a(add, t.add->p),
          truncation_m(mul, (mul_rounds ? t.mul : t.add)->p), per((add.random ? add.rbits : mul.rbits) > 16 ? 4 : 8) {}

    INL_MEMBER void draw(int64_t at) {
        const uint32_t block = (uint32_t)(at / per);
        if (ka.random)
            for (int op = 0; op < operations(METHOD); ++op) draws[op].make(tile, row, block, SITE_STEP + op);
        if (rounds && km.random) draws[PRODUCT_ROUNDING].make(tile, row, block, SITE_PRODUCT);
    }
    INL_MEMBER Ops operations_of(const Const<C>& k, const Truncation<C>& truncation, int i, int j, int64_t at) const {
        if constexpr (OWN && DRAWS) return Ops{k, truncation, Bits(draws, i, j, at, k.rbits)};
        else if constexpr (OWN) return Ops{k, truncation, Bits()};
        else return Ops{k, Bits(draws, i, j, at, k.random ? k.rbits : 16)};
    }

    // False: a register is not below `speculation.most` in magnitude.
    __attribute__((noinline)) bool run(const Speculation& speculation) {
        const T *a = (const T*)tile.a + row, *b = (const T*)tile.b;
        T *out = (T*)tile.c + row * NV * C::L, *rest = (T*)tile.rest + row * NV * C::L;
        V s[ROWS][NV] = {}, c[ROWS][NV] = {};
        if (__builtin_expect(!tile.begins, 0)) get_sums<C, ROWS>(out, rest, s, c);
        const V most = splat<C>((T)speculation.most);
        VI lost = {};
        const int64_t segment = KIND == Rounding::DIRECTED ? speculation.steps : tile.k;
        for (int64_t k0 = 0; k0 < tile.k; k0 += segment) {
            const int64_t end = k0 + segment < tile.k ? k0 + segment : tile.k;
            for (int64_t k = k0; k < end; ++k) {
                const int64_t at = DRAWS ? tile.index(k) : 0;  // a draw belongs to the absolute index, wherever this part starts
                if (DRAWS && (k == 0 || tile.kmap || at % per == 0)) draw(at);
                V bv[NV];
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; ++i) {
                    const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                    for (int j = 0; j < NV; ++j) {
                        const Ops add = operations_of(ka, truncation_a, i, j, at), mul = operations_of(km, truncation_m, i, j, at);
                        Step::finish(Step::term(av, bv[j], c[i][j], add, mul, rounds), s[i][j], c[i][j], add);
                    }
                }
            }
            if (KIND == Rounding::DIRECTED)
                for (int i = 0; i < ROWS; ++i)
                    for (int j = 0; j < NV; ++j)
                        lost |= ~((VI)((V)((VU)s[i][j] & ~C::SIGN) < most) & (VI)((V)((VU)c[i][j] & ~C::SIGN) < most));
        }
        if (__builtin_expect(!tile.ends, 0)) {
            put_sums<C, ROWS>(s, c, out, rest);
            return none_of(lost);
        }
        const int64_t last = DRAWS && tile.k ? tile.index(tile.k - 1) : 0;
        if (DRAWS && METHOD != KAHAN && ka.random) draws[LAST_SUM].make(tile, row, (uint32_t)(last / per), SITE_FINAL);
        for (int i = 0; i < ROWS; ++i)
            for (int j = 0; j < NV; ++j) {
                const V r = METHOD == KAHAN || tile.k == 0
                                ? s[i][j]
                                : operations_of(ka, truncation_a, i, j, last).template add<LAST_SUM>(s[i][j], c[i][j]);
                store(out + (i * NV + j) * C::L, OWN ? plus_zero<C, MODE>(r) : r);
            }
        return none_of(lost);
    }
    static bool none_of(VI lost) {
        for (int l = 0; l < C::L; ++l)
            if (lost[l]) return false;
        return true;
    }
};

template <class C, int METHOD, Rounding KIND, int MODE, bool ODD> static bool all_in_mode(const Tile& t, const Speculation& speculation,
                                                                                          bool rounds) {
    constexpr int BLOCK = MODE == SR ? 2 : WIDTH == 64 || ISA_NEON ? 4 : 2;
    const Const<C> add = Const<C>::make(*t.add), mul = Const<C>::make(rounds ? *t.mul : *t.add);
#if ISA_MODES
    const RoundingState state(KIND == Rounding::STOCHASTIC ? RoundingState::NEAREST : mode_of(MODE));
#endif
    int row = 0;
    for (; row + BLOCK <= t.rows; row += BLOCK)
        if (!CompensatedInMode<C, METHOD, KIND, MODE, ODD, BLOCK>(t, row, add, mul, rounds).run(speculation)) return false;
    for (; row < t.rows; ++row)
        if (!CompensatedInMode<C, METHOD, KIND, MODE, ODD, 1>(t, row, add, mul, rounds).run(speculation)) return false;
    return true;
}

template <class C, int METHOD, Rounding KIND> static bool all_in_their_mode(const Tile& t, const Speculation& speculation, bool rounds) {
    switch (t.add->mode) {
        case RNA: return all_in_mode<C, METHOD, KIND, RNA, true>(t, speculation, rounds);
        case RTZ: return all_in_mode<C, METHOD, KIND, RTZ, true>(t, speculation, rounds);
        case RU: return all_in_mode<C, METHOD, KIND, RU, true>(t, speculation, rounds);
        case RD: return all_in_mode<C, METHOD, KIND, RD, true>(t, speculation, rounds);
        case RO: return all_in_mode<C, METHOD, KIND, RO, true>(t, speculation, rounds);
        default: return all_in_mode<C, METHOD, KIND, SR, true>(t, speculation, rounds);
    }
}

#if ISA_MODES
// Computes float panels as tiles of doubles, half of the columns at a time.
template <int METHOD> static bool random_in_double_lanes(const Tile& t, const Speculation& speculation, bool rounds) {
    constexpr int HALF = NV * C64::L;
    double* const a = (double*)malloc(sizeof(double) * (size_t)(t.k * (MR + HALF) + 1));
    if (!a) throw std::bad_alloc();
    double* const b = a + t.k * MR;
    alignas(64) double c[MR * HALF], rest[MR * HALF];
    for (int64_t i = 0; i < t.k * MR; ++i) a[i] = (double)((const float*)t.a)[i];
    for (int half = 0; half < 2; ++half) {
        for (int64_t k = 0; k < t.k; ++k)
            for (int j = 0; j < HALF; ++j) b[k * HALF + j] = (double)((const float*)t.b)[(2 * k + half) * HALF + j];
        Tile wide = t;
        wide.a = a;
        wide.b = b;
        wide.c = c;
        wide.rest = rest;
        for (int i = 0; !t.begins && i < t.rows; ++i)
            for (int j = 0; j < HALF; ++j) {
                c[i * HALF + j] = (double)((const float*)t.c)[(2 * i + half) * HALF + j];
                rest[i * HALF + j] = (double)((const float*)t.rest)[(2 * i + half) * HALF + j];
            }
        wide.col0 = t.col0 + (uint32_t)(half * HALF);
        all_in_mode<C64, METHOD, Rounding::STOCHASTIC, SR, true>(wide, speculation, rounds);
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < HALF; ++j) {
                ((float*)t.c)[(2 * i + half) * HALF + j] = (float)c[i * HALF + j];
                if (!t.ends) ((float*)t.rest)[(2 * i + half) * HALF + j] = (float)rest[i * HALF + j];
            }
    }
    free(a);
    return true;
}
#endif

template <class C, int METHOD> static CompensatedFn compensated_mode_of(Rounding kind, bool odd) {
    if (kind == Rounding::DIRECTED) return all_in_their_mode<C, METHOD, Rounding::DIRECTED>;
    if (kind == Rounding::DIRECTED_CLAMP) return all_in_their_mode<C, METHOD, Rounding::DIRECTED_CLAMP>;
#if ISA_MODES
    if (odd && sizeof(typename C::T) == 4) return random_in_double_lanes<METHOD>;
#endif
    return odd ? all_in_mode<C, METHOD, Rounding::STOCHASTIC, SR, true> : all_in_mode<C, METHOD, Rounding::STOCHASTIC, SR, false>;
}

template <class C> static CompensatedFn compensated_method_in_modes(int method, Rounding kind, bool odd) {
    switch (method) {
        case KAHAN: return compensated_mode_of<C, KAHAN>(kind, odd);
        case NEUMAIER: return compensated_mode_of<C, NEUMAIER>(kind, odd);
        case TWO_SUM: return compensated_mode_of<C, TWO_SUM>(kind, odd);
        default: return compensated_mode_of<C, FAST_TWO_SUM>(kind, odd);
    }
}

}  // namespace gemmsim::NS
#endif
