// Determines in integers which events occur at one addition R(s + q), for every format, mode and pair of addends
// (gemmsim.count_events).
#pragma once
#include "gemmsim/exact.h"

namespace gemmsim {

// Events of an addition R(s + q) of finite numbers. SWAMPED: R(s + q) = s although q is not 0. INEXACT: R(s + q) is not s + q.
// UNDERFLOWN: the addition is inexact, and 0 < |s + q| < the smallest normal number. OVERFLOWN: s + q, rounded as if the exponent
// were not bounded, is past an end of the format.
enum Event : int { SWAMPED = 0, INEXACT = 1, UNDERFLOWN = 2, OVERFLOWN = 3, EVENTS = 4 };

// Each event has a byte, so that adding these units counts up to 255 additions.
GEMMSIM_HD constexpr uint32_t event_unit(int event) { return 1u << 8 * event; }

// Whether the exact sum `x`, rounded to `v`, left the format. Only a value that can result from an overflow is checked further.
GEMMSIM_HD bool left_range(const Exact& x, double v, const Cast& c, uint32_t R) {
    if (v > c.lo && v < c.hi && v != c.over_pos && v != c.over_neg) return false;
    Cast open = c;
    open.lo = -double_of(0x7FFull << 52);
    open.hi = double_of(0x7FFull << 52);
    const double unbounded = round_exact(x, open, R);
    return unbounded > c.hi || unbounded < c.lo;
}

// Truncates x to the width that exact_sum() takes, with a sticky bit for what is lost.
GEMMSIM_HD Exact narrowed(Exact x) {
    const int cut = bit_length(x.mag) - 120;
    if (cut <= 0) return x;
    x.sticky = x.sticky || (x.mag & (((u128)1 << cut) - 1)) != 0;
    return Exact{x.mag >> cut, x.exp + cut, x.neg, x.sticky};
}

// Whether the narrowed sum `x` is exactly `v`; whether its magnitude is nonzero and below `least`.
GEMMSIM_HD bool is_value(const Exact& x, double v) {
    if (x.sticky || is_nan(v) || is_inf(v)) return false;
    const Exact rest = exact_sum(x, exact_value(-v));
    return rest.mag == 0 && !rest.sticky;
}
GEMMSIM_HD bool is_tiny(const Exact& x, double least) {
    const Exact rest = exact_sum(Exact{x.mag, x.exp, false, x.sticky}, exact_value(-least));
    return x.mag != 0 && rest.mag != 0 && rest.neg;
}

// The units of all events of one addition of a finite number to `s`. `x` is the exact sum and `v` its rounding. `some`: the number
// added is not zero. `least`: the smallest normal number.
GEMMSIM_HD uint32_t events_of(const Exact& x, double s, bool some, double v, const Cast& c, double least, uint32_t R) {
    const Exact y = narrowed(x);
    uint32_t seen = some && v == s ? event_unit(SWAMPED) : 0;
    if (is_value(y, v)) return seen;
    seen |= event_unit(INEXACT);
    if (is_tiny(y, least)) seen |= event_unit(UNDERFLOWN);
    if (left_range(x, v, c, R)) seen |= event_unit(OVERFLOWN);
    return seen;
}

}  // namespace gemmsim
