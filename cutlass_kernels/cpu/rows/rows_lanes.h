// This file computes the steps of row operations on vectors of doubles, with one row in each lane. rows/scalar_lane.h defines
// each step.
//
// Sums, products, quotients and roots are rounded to odd in double. The rounding to a format of up to 50 bits (random
// bits included) is then the only one that counts. Operands are numbers of such formats inside float32's range, so
// products are exact and no residual underflows.
#pragma once
#include "casts/elementwise.h"
#include "tiles/rounders.h"
#include "rows/scalar_lane.h"

namespace gemmsim::NS {

// How a step rounds. ROW_FLOAT: to float32 by the conversion instruction. ROW_NEAREST: to nearest even by adding a
// large number. ROW_BITS and ROW_RANDOM: any deterministic mode, and SR, on the bits. ROW_SINGLE: number by number.
enum RowWay : int32_t { ROW_FLOAT = 0, ROW_NEAREST = 1, ROW_BITS = 2, ROW_RANDOM = 3, ROW_SINGLE = 4 };

struct Vectors {
    typedef C64::V V;
    typedef C64::VU U;
    typedef C64::VI M;
    INL V splat(double x) { return gemmsim::NS::splat<C64>(x); }
    INL U unsigned_splat(uint64_t x) { return splat_u<C64>(x); }
    INL V fma(V a, V b, V c) { return vfma(a, b, c); }
    INL M less(V a, V b) { return (M)(a < b); }
    INL bool any(M m) {
        int64_t r = 0;
        for (int i = 0; i < (int)C64::L; ++i) r |= m[i];
        return r != 0;
    }
    INL V choose(M m, V a, V b) { return m ? a : b; }
    INL U bits(V x) { return (U)x; }
    INL V of(U x) { return (V)x; }
    INL U exponent(U x) { return (U)((M)x >> 52); }
};

INL C64::V root_of(C64::V x) {
#if ISA_AVX512
    return (C64::V)_mm512_sqrt_pd((__m512d)x);
#elif ISA_AVX2
    return (C64::V)_mm256_sqrt_pd((__m256d)x);
#else
    for (int i = 0; i < (int)C64::L; ++i) x[i] = __builtin_sqrt(x[i]);
    return x;
#endif
}

struct VectorLanes {
    typedef C64::V V;
    typedef C64::VU VU;
    typedef C64::VI VI;
    enum { COUNT = C64::L };
    const rows::Step* steps;
    const Const<C64>* consts;  // one for each step
    uint64_t seed, row, cols;  // lane i is row `row + i`

    INL V splat(double x) { return gemmsim::NS::splat<C64>(x); }
    INL V negate(V x) { return (V)((VU)x ^ C64::SIGN); }
    INL V larger(V a, V b) { return (VI)(a > b) | (VI)(a != a) ? a : b; }

    inline __attribute__((always_inline)) uint32_t draw(const rows::Step& s, int64_t k, int lane) const {
        return draw_element(seed, (row + lane) * cols + (uint64_t)k, s.site, s.cast.rbits);
    }
    __attribute__((noinline)) V round_singly(V x, const rows::Step& s, int64_t k) const {
        for (int i = 0; i < COUNT; ++i) x[i] = round_value(x[i], s.cast, s.cast.mode >= SR ? draw(s, k, i) : 0);
        return x;
    }
    __attribute__((noinline)) VU draws(const rows::Step& s, int64_t k) const {
        VU r = {};
        for (int i = 0; i < COUNT; ++i) r[i] = draw(s, k, i);
        return r;
    }
    // x is exact or rounded to odd.
    inline __attribute__((always_inline)) V round(V x, int step, int64_t k) const {
        const rows::Step& s = steps[step];
        const Const<C64>& c = consts[step];
        if (s.way == ROW_FLOAT) { return widened(__builtin_convertvector(x, HalfFloats)); }
        if (s.way == ROW_NEAREST) {
            const V r = round_to<C64, Rounding::OVERFLOWS>(x, c, (VU){}), inf = (VI)x < 0 ? c.inf_neg : c.inf_pos;
            return ((VU)x & ~C64::SIGN) == C64::EXP ? inf : r;
        }
        if (s.way == ROW_BITS) return round_general<C64, false>(x, c, (VU){});
        if (s.way == ROW_RANDOM) return round_general<C64, true>(x, c, draws(s, k));
        return round_singly(x, s, k);
    }
    // Rounds to odd. y is the nearest double to a value y + d, where d has the sign of `rest`. An inexact y with an
    // even last bit moves to its neighbour towards the value.
    INL V to_odd(V y, V rest) {
        const VU u = (VU)y;
        const VI fix =
            (VI)(rest != (V){}) & (VI)(rest == rest) & (VI)((VU)(u & C64::EXP) != splat_u<C64>(C64::EXP)) & (VI)((VU)(u & 1) == (VU){});
        const VI away = (VI)((rest > (V){}) == (y > (V){}));
        return (V)(u + ((VU)fix & (VU)((away & 2) - 1)));
    }
    inline __attribute__((always_inline)) V add(V a, V b, int step, int64_t k) const { return round(add_odd<C64>(a, b), step, k); }
    inline __attribute__((always_inline)) V mul(V a, V b, int step, int64_t k) const {
        const V q = a * b;
        return round(to_odd(q, vfma(a, b, negate(q))), step, k);
    }
    inline __attribute__((always_inline)) V div(V a, V b, int step, int64_t k) const {
        const V q = a / b, rest = vfma(negate(q), b, a);
        return round(to_odd(q, (V)((VU)rest ^ ((VU)b & C64::SIGN))), step, k);
    }
    inline __attribute__((always_inline)) V root(V a, int step, int64_t k) const {
        const V q = root_of(a);
        return round(to_odd(q, vfma(negate(q), q, a)), step, k);
    }
    V add_number(V a, double b, int step) const { return add(a, splat(b), step, 0); }
    V div_once(V a, V b, int step) const { return div(a, b, step, 0); }
    __attribute__((noinline)) V undecided(VI which, V y, int f, V a, V b, int step, int64_t k) const {
        const rows::Step& s = steps[step];
        for (int i = 0; i < COUNT; ++i)
            if (which[i]) y[i] = rows::function_step(f, a[i], b[i], s.cast, s.cast.mode >= SR ? draw(s, k, i) : 0);
        return y;
    }
    inline __attribute__((always_inline)) V function(int f, V a, V b, int step, int64_t k) const {
        const V largest = splat(0x1.fffffffffffffp1023);
        // rows::exact_case may decide these: zeros, infinities, NaN, ones, and powers of negative numbers.
        VI special = ~(VI)((V)((VU)a & ~C64::SIGN) <= largest);
        if (f == rows::LOG_ADD) special |= ~(VI)((V)((VU)b & ~C64::SIGN) <= largest);
        else if (f == rows::LOG || f == rows::POW) special |= ~(VI)(a > (V){}) | (VI)(a == splat(1.0));
        else if (f != rows::EXP) special |= (VI)(a == (V){});
        if (f == rows::POW) special |= ~(VI)((V)((VU)b & ~C64::SIGN) <= largest) | (VI)(b == (V){});
        rows::Approximation<Vectors> q = rows::approximate<Vectors>(f, a, b);
        if (f == rows::EXP) {  // e^0 and e^-inf are common (a row's largest number, masked ones) and exact
            const V one = splat(1.0), below = (V)(VU)((VU)(VI)(a != (V){}) & (VU)q.value);
            q.value = a == (V){} ? one : below;
            const VI exact = (VI)(a == (V){}) | (VI)(a == splat(-__builtin_inf()));
            q.value = a == splat(-__builtin_inf()) ? (V){} : q.value;
            q.error = exact ? (V){} : q.error;
            special &= ~exact;
        }
        const V low = round(q.value - q.error, step, k), high = round(q.value + q.error, step, k);
        const VI which = special | (VI)((VU)low != (VU)high);
        return __builtin_expect(Vectors::any(which), 0) ? undecided(which, low, f, a, b, step, k) : low;
    }
};

}  // namespace gemmsim::NS
