// What happens at the additions of a kernel, counted for each output of a thread (gemmsim.count_events). The value is the
// ordinary kernel's; here each addition is looked at once more, beside it.
#pragma once
#include "gemm/simt/steps.h"
#include "gemmsim/events.h"

namespace gemmsim {

// Integers of 128 bits: long code, one copy for each cast.
template <Cast C> GEMMSIM_CALL uint32_t exact_events(double s, double q, double v, double least, uint32_t R) {
    if (is_nan(s) || is_nan(q) || is_inf(s) || is_inf(q)) return 0;
    return events_of(exact_sum(exact_value(q), exact_value(s)), s, q != 0, v, C, least, R);
}
template <Cast C> GEMMSIM_CALL uint32_t exact_fused_events(double s, double a, double b, double v, double least, uint32_t R) {
    if (is_nan(a) || is_nan(b) || is_nan(s) || is_inf(a) || is_inf(b) || is_inf(s)) return 0;
    return events_of(exact_sum(exact_product(a, b), exact_value(s)), s, a != 0 && b != 0, v, C, least, R);
}

// The events of R_C(s + q) = v, of addends that are numbers of type W. W's nearest sum and what that leaves, Knuth's 2Sum, tell
// all of a sum in W's range that stays inside the format; the others go through integers.
template <class W, Cast C> struct WatchedSum {
    static constexpr W FAR = power<W>(Carrier<W>::EMAX - 1);
    // What an overflow becomes may be a number inside the range, too.
    static constexpr bool inside(double x) { return is_finite(x) && x > C.lo && x < C.hi; }
    static constexpr bool INSIDE = inside(C.over_pos) || inside(C.over_neg);

    static GEMMSIM_HD bool may_be_overflow(W v) {
        if constexpr (INSIDE)
            if ((double)v == C.over_pos || (double)v == C.over_neg) return true;
        return !(v > (W)C.lo && v < (W)C.hi);
    }
    // R: the draw of a stochastic cast.
    static GEMMSIM_HD uint32_t events(W s, W q, W v, double least, uint32_t R) {
        const W sum = add_rn(s, q), part = add_rn(sum, -s), lost = add_rn(add_rn(s, -add_rn(sum, -part)), add_rn(q, -part));
        const W size = sum < 0 ? -sum : sum;
        // (A comparison with NaN is false.)
        if (may_be_overflow(v) || !(size < FAR) || lost != lost) return exact_events<C>((double)s, (double)q, (double)v, least, R);
        uint32_t seen = v == s && q != 0 ? event_unit(SWAMPED) : 0;
        if (v == sum && lost == 0) return seen;
        // The nearest number to a tiny sum may be the smallest normal itself, from which something is missing then.
        const W edge = (W)least;
        const bool tiny = sum != 0 && (size < edge || (size == edge && lost != 0 && (lost < 0) != (sum < 0)));
        return seen | event_unit(INEXACT) | (tiny ? event_unit(UNDERFLOWN) : 0);
    }
};

// Counts of the outputs of a thread. Several additions a term are more than 32 bits hold of 2^31 terms.
template <GemmConfig K> struct EventCounts {
    typedef typename Steps<K>::T T;
    template <class X, class Y, bool SECOND> struct Pick {
        typedef X type;
    };
    template <class X, class Y> struct Pick<X, Y, true> {
        typedef Y type;
    };
    typedef typename Pick<uint32_t, uint64_t, (K.levels > 0)>::type Count;
    Count n[K.rows][K.cols][EVENTS] = {};
    uint32_t held[K.rows][K.cols] = {};  // of the chunk in use
    static_assert(K.depth < 256);

    // What is held counts from now on. After each chunk, and after what is added between chunks.
    GEMMSIM_HD void settle() {
        GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) GEMMSIM_UNROLL for (int j = 0; j < K.cols; ++j) {
            GEMMSIM_UNROLL for (int e = 0; e < EVENTS; ++e) n[i][j][e] += held[i][j] >> 8 * e & 0xFF;
            held[i][j] = 0;
        }
    }
    // R(s + q) = v of carrier values; LEVEL: 0 the register, 1 the first wrapper.
    template <int LEVEL, Cast C> GEMMSIM_HD void sum(int i, int j, T s, T q, T v, uint32_t R) {
        held[i][j] += WatchedSum<T, C>::events(s, q, v, K.watch.least[LEVEL], R);
    }
    // R(s + a b) = v, in the narrowest type that holds every product of the operands.
    GEMMSIM_HD void fused(int i, int j, T s, T a, T b, T v, uint32_t R) {
        constexpr double least = K.watch.least[0];
        if constexpr (Steps<K>::FACTS.exact) held[i][j] += WatchedSum<T, K.add>::events(s, mul_rn(a, b), v, least, R);
        else if constexpr (sizeof(T) == 4) {
            const double q = mul_rn((double)a, (double)b);
            held[i][j] += WatchedSum<double, K.add>::events((double)s, q, (double)v, least, R);
        } else held[i][j] += exact_fused_events<K.add>((double)s, (double)a, (double)b, (double)v, least, R);
    }
};

}  // namespace gemmsim
