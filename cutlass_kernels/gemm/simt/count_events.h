// Counts the events of a kernel's additions for each output of a thread (gemmsim.count_events). The value is computed by the steps of
// the ordinary kernel; this file checks each addition separately. count_events_run.h uses it.
#pragma once
#include "gemm/simt/steps.h"
#include "gemmsim/events.h"

namespace gemmsim {

// The fallback: events by integers of 128 bits. It is long code, so each cast has one copy that is not inlined.
template <Cast C> GEMMSIM_CALL uint32_t exact_events(double s, double q, double v, double least, uint32_t R) {
    if (is_nan(s) || is_nan(q) || is_inf(s) || is_inf(q)) return 0;
    return events_of(exact_sum(exact_value(q), exact_value(s)), s, q != 0, v, C, least, R);
}
template <Cast C> GEMMSIM_CALL uint32_t exact_fused_events(double s, double a, double b, double v, double least, uint32_t R) {
    if (is_nan(a) || is_nan(b) || is_nan(s) || is_inf(a) || is_inf(b) || is_inf(s)) return 0;
    return events_of(exact_sum(exact_product(a, b), exact_value(s)), s, a != 0 && b != 0, v, C, least, R);
}

// The events of R_C(s + q) = v for addends that are numbers of type W. If the sum is in W's range and inside the format, W's
// nearest sum and its error by Knuth's 2Sum determine all events. Other sums take the fallback in integers.
template <class W, Cast C> struct CountedSum {
    static constexpr W FAR = power<W>(Carrier<W>::EMAX - 1);
    // Whether the result of an overflow may be a number inside the range.
    static constexpr bool inside(double x) { return is_finite(x) && x > C.lo && x < C.hi; }
    static constexpr bool INSIDE = inside(C.over_pos) || inside(C.over_neg);

    static GEMMSIM_HD bool may_be_overflow(W v) {
        if constexpr (INSIDE)
            if ((double)v == C.over_pos || (double)v == C.over_neg) return true;
        return !(v > (W)C.lo && v < (W)C.hi);
    }
    // Returns the units of the events (event_unit). R is the draw of a stochastic cast.
    static GEMMSIM_HD uint32_t events(W s, W q, W v, double least, uint32_t R) {
        const W sum = add_rn(s, q), part = add_rn(sum, -s), lost = add_rn(add_rn(s, -add_rn(sum, -part)), add_rn(q, -part));
        const W size = sum < 0 ? -sum : sum;
        // A comparison with NaN is false, so NaN takes the fallback.
        if (may_be_overflow(v) || !(size < FAR) || lost != lost) return exact_events<C>((double)s, (double)q, (double)v, least, R);
        uint32_t seen = v == s && q != 0 ? event_unit(SWAMPED) : 0;
        if (v == sum && lost == 0) return seen;
        // A tiny sum may round to the smallest normal itself. Its error then has the opposite sign.
        const W edge = (W)least;
        const bool tiny = sum != 0 && (size < edge || (size == edge && lost != 0 && (lost < 0) != (sum < 0)));
        return seen | event_unit(INEXACT) | (tiny ? event_unit(UNDERFLOWN) : 0);
    }
};

// The counters of a thread's outputs. With wrappers, 2^31 terms may have more additions than 32 bits can count, because a term may take
// several.
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
    uint32_t held[K.rows][K.cols] = {};  // counts of the chunk in use, a byte for each event
    static_assert(K.depth < 256);

    // Adds `held` to the counters. Callers call it after each chunk and after additions between chunks.
    GEMMSIM_HD void settle() {
        GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) GEMMSIM_UNROLL for (int j = 0; j < K.cols; ++j) {
            GEMMSIM_UNROLL for (int e = 0; e < EVENTS; ++e) n[i][j][e] += held[i][j] >> 8 * e & 0xFF;
            held[i][j] = 0;
        }
    }
    // Counts the addition R(s + q) = v of carrier values. LEVEL is 0 for the register, 1 for the first wrapper, and so on.
    template <int LEVEL, Cast C> GEMMSIM_HD void sum(int i, int j, T s, T q, T v, uint32_t R) {
        held[i][j] += CountedSum<T, C>::events(s, q, v, K.counted.least[LEVEL], R);
    }
    // Counts the fused addition R(s + a b) = v. It takes the narrowest type that represents every product of the operands, or
    // integers.
    GEMMSIM_HD void fused(int i, int j, T s, T a, T b, T v, uint32_t R) {
        constexpr double least = K.counted.least[0];
        if constexpr (Steps<K>::FACTS.exact) held[i][j] += CountedSum<T, K.add>::events(s, mul_rn(a, b), v, least, R);
        else if constexpr (sizeof(T) == 4) {
            const double q = mul_rn((double)a, (double)b);
            held[i][j] += CountedSum<double, K.add>::events((double)s, q, (double)v, least, R);
        } else held[i][j] += exact_fused_events<K.add>((double)s, (double)a, (double)b, (double)v, least, R);
    }
};

}  // namespace gemmsim
