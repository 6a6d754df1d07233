// Tiles of exact products and sums on processors that round in one direction by a mode (ISA_MODES), not by the instruction.
//
// Watched: nearest even. The carrier's nearest sum, rounded to the format, is wrong only if that sum was not exact and lies
// on a midpoint of the format, and its last steps are other ones below 2^emin. So all sums of a step are looked at together;
// if any is on a midpoint, or below 2^emin and not zero, the step is done again to odd, from the registers as they were.
// Products must not underflow in the carrier; then a sum is zero only if it is exactly that.
//
// To odd: under rounding down, a*b + c and -(-a*b - c) are the two directed results, of any operands; of which the odd one.
// What follows is in integers (round_general) and takes no notice of the mode.
#pragma once
#include "float_state.h"
#include "tiles/gemm_kernel.h"

#if ISA_MODES
namespace gemmsim::NS {

// Of both directed results, that up as the negative of one down.
template <class C> INL typename C::V odd_of(typename C::V down, typename C::V minus_up) {
    typedef typename C::VU VU;
    const VU up = (VU)minus_up ^ C::SIGN;
    return where_odd((typename C::V)up, down, (VU)down);
}

template <class C, int STEP, bool RANDOM> INL typename C::V down_to_odd(typename C::V a, typename C::V b, typename C::V s,
                                                                        const Const<C>& mul, const Const<C>& add, typename C::VU rm,
                                                                        typename C::VU ra) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    if (STEP == FMA_ODD) return round_general<C, RANDOM>(odd_of<C>(vfma(a, b, s), vfnms(a, b, s)), add, ra);
    const V minus_a = in_register((V)((VU)a ^ C::SIGN));  // or the compiler takes -(-a * b) for a * b
    const V q = round_general<C, RANDOM>(odd_of<C>(a * b, minus_a * b), mul, rm), minus_q = in_register((V)((VU)q ^ C::SIGN));
    return round_general<C, RANDOM>(odd_of<C>(s + q, minus_q - s), add, ra);
}

// Terms [from, to) of ROWS rows, the registers in the tile's c; the mode is down.
template <class C, int STEP, bool RANDOM, int ROWS>
static __attribute__((noinline)) void rows_to_odd(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul,
                                                  const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    const int rm = RANDOM && mul.random && STEP >= MA_NEAR ? mul.rbits : 0, ra = RANDOM && add.random ? add.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C, RANDOM ? ROWS : 1> dm, da;
    V s[ROWS][NV];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = from; k < to; ++k) {
        const int64_t at = t.index(k);  // draws belong to the absolute index, wherever this run starts
        const bool fresh = k == from || t.kmap;
        if (RANDOM && rm && (fresh || at % nm == 0)) dm.make(t, row, (uint32_t)(at / nm), SITE_PRODUCT);
        if (RANDOM && ra && (fresh || at % na == 0)) da.make(t, row, (uint32_t)(at / na), SITE_ADD);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>(a[k * MR + i]);
            for (int j = 0; j < NV; ++j) {
                const VU xm = RANDOM && rm ? dm.get(i, j, (int)(at % nm), rm) : (VU){};
                const VU xa = RANDOM && ra ? da.get(i, j, (int)(at % na), ra) : (VU){};
                s[i][j] = down_to_odd<C, STEP, RANDOM>(av, load<V>(b + (k * NV + j) * C::L), s[i][j], mul, add, xm, xa);
            }
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, int STEP, bool RANDOM, int ROWS>
INL void run_to_odd(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul, const Const<C>& add) {
    const RoundingState state(RoundingState::DOWN);
    rows_to_odd<C, STEP, RANDOM, ROWS>(t, row, from, to, mul, add);
}

// Any deterministic or stochastic mode, any policy, any operands.
template <class C, int STEP, bool RANDOM> static void tile_to_odd(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    constexpr int ROWS = RANDOM ? 2 : 1;
    int row = 0;
    for (; row + ROWS <= t.rows; row += ROWS) run_to_odd<C, STEP, RANDOM, ROWS>(t, row, 0, t.k, mul, add);
    if (row < t.rows) run_to_odd<C, STEP, RANDOM, 1>(t, row, 0, t.k, mul, add);
}

// What the sums of a step have been like: whether any is on a midpoint, or below 2^emin.
template <class C, bool SUBNORMALS> struct Seen {
    typename C::VI midpoints = {}, small = {};
};
template <bool SUBNORMALS> struct Seen<C32, SUBNORMALS> {  // least values, signed and without sign: an instruction each
    C32::VI midpoints = splat_i<C32>(0);
    C32::VU small = splat_u<C32>(0xFFFFFFFFu);
};

template <class C> struct Watch {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VU up;      // by which the bits that go are moved to the top: those of a midpoint are the sign bit alone
    VU normal;  // 2 * bits of 2^emin
    V factor;

    explicit Watch(const Const<C>& k, const gemmsim::Cast& cast)
        : up(splat_u<C>((typename C::U)(cast.p + 8 * sizeof(typename C::T) - C::MB - 1))), normal(k.normal_from * 2), factor(k.factor) {}

    INL_MEMBER V round(V s) const {
        const V g = s * factor;
        return g + (s - g);
    }
    template <bool SUBNORMALS> INL_MEMBER void look(V s, Seen<C, SUBNORMALS>& seen) const {
        const VU u = (VU)s;
        if constexpr (sizeof(typename C::T) == 4) {
            seen.midpoints = imin(seen.midpoints, (VI)(u << up));
            if (SUBNORMALS) seen.small = umin(seen.small, u + u);
        } else {
            seen.midpoints |= (VI)((VU)(u << up) == splat_u<C>(C::SIGN));
            if (SUBNORMALS) seen.small |= (VI)((VI)((u + u) ^ C::SIGN) < (VI)(normal ^ C::SIGN));
        }
    }
    // Whether the step must be looked at more closely: zeros count as small here.
    template <bool SUBNORMALS> INL_MEMBER VI found(const Seen<C, SUBNORMALS>& seen) const {
        if constexpr (sizeof(typename C::T) == 4) {
            const VI midpoint = (VI)((VU)seen.midpoints == splat_u<C>(C::SIGN));
            if (!SUBNORMALS) return midpoint;
            return midpoint | ~at_least(seen.small, normal);
        } else return seen.midpoints | seen.small;
    }
    // What `round` is with subnormals; `wrong`: whether it may be rounded wrongly, a midpoint wherever it is.
    template <bool SUBNORMALS> INL_MEMBER V round_closely(V s, const Const<C>& k, VI& wrong) const {
        const VU u = (VU)s;
        const VI midpoint = (VI)((VU)(u << up) == splat_u<C>(C::SIGN));
        if (!SUBNORMALS) {
            wrong |= midpoint;
            return round(s);
        }
        const V r = round_magic<C, true, true>(s, k);
        const VI small = (VI)((VI)((u + u) ^ C::SIGN) < (VI)(normal ^ C::SIGN));
        wrong |= small ? (VI)(((VU)(s - r) & ~C::SIGN) == k.half_quantum) : midpoint;
        return r;
    }
};

// Whether sums of a rounded product and a register that holds a value of the format are never looked at: lemma A of plan.h,
// and what is below 2^emin is exact.
inline bool sums_are_safe(const gemmsim::Cast& mul, const gemmsim::Cast& add, int bits) {
    return mul.p <= add.p && 2 * add.p <= bits - 1 && mul.emin - mul.p >= add.emin - add.p;
}

// Terms from `from` on of ROWS rows; where it ends: at t.k, or before, where midpoints are no exception or a register is -0,
// which the rounding above would make +0. SUMS: whether they are looked at.
template <class C, int STEP, bool SUBNORMALS, bool SUMS, int ROWS>
static __attribute__((noinline)) int64_t rows_watched(const Tile& t, int row, int64_t from, const Const<C>& mul, const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* c = (T*)t.c + row * NV * C::L;
    const Watch<C> of_sum(add, *t.add), of_product(mul, STEP == MA_ODD ? *t.mul : *t.add);
    V s[ROWS][NV];
    VI stop = {};
    auto each = [&](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) f(i, j);
    };
    auto stop_at = [&](V x) __attribute__((always_inline)) {
        stop |= (VI)((VU)x == splat_u<C>(C::SIGN));
        if (!SUMS) stop |= (VI)((VU)((VU)x << of_sum.up) != (VU){});  // a register that has not been rounded yet
    };
    auto get = [&]() __attribute__((always_inline)) {
        each([&](int i, int j) __attribute__((always_inline)) {
            s[i][j] = load<V>(c + (i * NV + j) * C::L);
            stop_at(s[i][j]);
        });
    };
    auto put = [&]() __attribute__((always_inline)) {
        each([&](int i, int j) __attribute__((always_inline)) { store(c + (i * NV + j) * C::L, s[i][j]); });
    };
    get();
    int64_t k = from, again = 0;
    // The sum of registers and terms k, its product rounded before, given to `f`.
    auto step = [&](auto f, auto rounded_product) __attribute__((always_inline)) {
        V bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) f(i, j, STEP == FMA_ODD ? vfma(av, bv[j], s[i][j]) : s[i][j] + rounded_product(av * bv[j]));
        }
    };
    for (; k < t.k && none_set(stop) && again * 8 <= k - from + 8; ++k) {
        V next[ROWS][NV];
        Seen<C, SUBNORMALS> sums, products;
        step(
            [&](int i, int j, V x) __attribute__((always_inline)) {
                if (SUMS) of_sum.template look<SUBNORMALS>(x, sums);
                next[i][j] = of_sum.round(x);
            },
            [&](V x) __attribute__((always_inline)) {
                of_product.template look<SUBNORMALS>(x, products);
                return of_product.round(x);
            });
        VI found = {};
        if (SUMS) found |= of_sum.template found<SUBNORMALS>(sums);
        if (STEP == MA_ODD) found |= of_product.template found<SUBNORMALS>(products);
        if (__builtin_expect(!none_set(found), 0)) {
            VI wrong = {};
            step(
                [&](int i, int j, V x) __attribute__((always_inline)) {
                    VI at_midpoint = {};
                    next[i][j] = of_sum.template round_closely<SUBNORMALS>(x, add, at_midpoint);
                    if (SUMS) wrong |= at_midpoint;
                    stop_at(next[i][j]);
                },
                [&](V x) __attribute__((always_inline)) { return of_product.template round_closely<SUBNORMALS>(x, mul, wrong); });
            if (!none_set(wrong)) {
                stop = (VI){};
                put();
                run_to_odd<C, STEP, false, ROWS>(t, row, k, k + 1, mul, add);
                get();
                ++again;
                continue;
            }
        }
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = next[i][j]; });
    }
    put();
    return k;
}

template <class C, int STEP, bool SUBNORMALS, bool SUMS, int ROWS> INL void watch(const Tile& t, int row, const Const<C>& mul,
                                                                                  const Const<C>& add) {
    enum { STRETCH = 64 };  // to odd before another try
    for (int64_t k = 0; k < t.k;) {
        k = rows_watched<C, STEP, SUBNORMALS, SUMS, ROWS>(t, row, k, mul, add);
        if (k == t.k) return;
        const int64_t end = k + STRETCH < t.k ? k + STRETCH : t.k;
        run_to_odd<C, STEP, false, ROWS>(t, row, k, end, mul, add);
        k = end;
    }
}

template <class C, int STEP, bool SUBNORMALS, bool SUMS> static void tile_of_watched(const Tile& t) {
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    int row = 0;
    for (; row + WATCHED_ROWS <= t.rows; row += WATCHED_ROWS) watch<C, STEP, SUBNORMALS, SUMS, WATCHED_ROWS>(t, row, mul, add);
    for (; row < t.rows; ++row) watch<C, STEP, SUBNORMALS, SUMS, 1>(t, row, mul, add);
}

// Kinds PLAIN and SUB.
template <class C, int STEP, bool SUBNORMALS> static void tile_watched(const Tile& t) {
    if (STEP == MA_ODD && sums_are_safe(*t.mul, *t.add, C::MB + 1)) tile_of_watched<C, STEP, SUBNORMALS, STEP != MA_ODD>(t);
    else tile_of_watched<C, STEP, SUBNORMALS, true>(t);
}

}  // namespace gemmsim::NS
#endif
