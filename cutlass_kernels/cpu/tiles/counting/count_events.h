// One addition in double lanes, and the events that happen at it (gemmsim/events.h).
#pragma once
#include "product/event_args.h"
#include "tiles/random_bits.h"
#include "tiles/rounders.h"

namespace gemmsim::NS {

INL C64::V read(const double* p) { return load<C64::V>(p); }
INL C64::V read(const float* p) { return widened(load<HalfFloats>(p)); }
INL void write(double* p, C64::V x) { store(p, x); }
INL void write(float* p, C64::V x) { store(p, __builtin_convertvector(x, HalfFloats)); }
INL C64::V magnitude(C64::V x) { return (C64::V)((C64::VU)x & ~C64::SIGN); }

// How often each event happened, for each lane.
struct Seen {
    C64::VI of[EVENTS];
    INL_MEMBER void add_to(const EventTile& into, int64_t element) const {
        for (int e = 0; e < EVENTS; ++e) {
            int64_t* const to = into.of(e, element);
            store(to, load<C64::VI>(to) + of[e]);
        }
    }
};

// A cast in double lanes that reports overflows, and the additions that it rounds.
struct CountedLanes {
    typedef C64::V V;
    typedef C64::VI VI;
    typedef C64::VU VU;
    Const<C64> k;  // the cast without ends of its range
    V lo, hi, over_neg, over_pos, least;

    INL CountedLanes make(const Cast& c, double least) {
        Cast open = c;
        open.lo = -__builtin_inf();
        open.hi = __builtin_inf();
        return CountedLanes{Const<C64>::make(open), splat<C64>(c.lo),       splat<C64>(c.hi),
                            splat<C64>(c.over_neg), splat<C64>(c.over_pos), splat<C64>(least)};
    }

    // Rounds `x`, which is exact or was rounded to odd. `finite`: whether x is finite. `beyond`: where the value is past an end of the
    // format.
    template <bool RANDOM> INL_MEMBER V rounded(V x, VU R, VI finite, VI* beyond) const {
        const V v = round_general<C64, RANDOM>(x, k, R);
        const VI above = (VI)(v > hi) & finite, below = (VI)(v < lo) & finite;
        *beyond = above | below;
        return select<C64>(above, over_pos, select<C64>(below, over_neg, v));
    }
    INL_MEMBER static VI is_finite(V x) { return (VI)(magnitude(x) < splat<C64>(__builtin_inf())); }

    template <bool RANDOM> INL_MEMBER V round(V x, VU R) const {
        VI beyond;
        return rounded<RANDOM>(x, R, is_finite(x), &beyond);
    }

    // R(s + q). An inexact sum that was rounded to odd has an odd last bit, which no value of the cast has. So v != x means inexact.
    template <bool RANDOM> INL_MEMBER V sum(V s, V q, VU R, Seen& seen) const {
        const V x = add_odd<C64>(s, q);
        const VI finite = is_finite(x);
        VI beyond;
        const V v = rounded<RANDOM>(x, R, finite, &beyond);
        const VI inexact = (VI)(v != x) & finite;
        seen.of[SWAMPED] -= (VI)(v == s) & (VI)(q != (V){}) & finite;
        seen.of[INEXACT] -= inexact;
        seen.of[UNDERFLOWN] -= inexact & (VI)(magnitude(x) < least);
        seen.of[OVERFLOWN] -= beyond;
        return v;
    }
};

}  // namespace gemmsim::NS
