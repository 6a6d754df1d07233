// Rounds by integer arithmetic on the carrier's bit pattern: every mode, every overflow policy, NaN, infinities, target subnormals
// or none. The Cast is a template parameter, so that unused cases cost nothing.
#pragma once
#include "gemmsim/device/carrier.h"

namespace gemmsim {

// The random bits that a rounding adds. Those of SRB are SR's with 2 R + 1 of one bit more.
GEMMSIM_HD constexpr int random_bits(const Cast& c) { return c.mode == SRB ? c.rbits + 1 : c.rbits; }

// Whether carrier T can round its own values to `c` with round_bits. The bounds are those of the CPU's vectors. Only ties to even
// and rounding to odd depend on the parity of a code.
template <class T> GEMMSIM_HD constexpr bool carrier_rounds(const Cast& c) {
    typedef Carrier<T> C;
    if ((c.flags & (ANY_GRID | NO_ZERO)) || ((c.flags & CODE_PARITY) && (c.mode == RNE || c.mode == RO))) return false;
    if (c.p > C::FRACTION + 1 || c.emin < 1 - C::BIAS || c.emax > C::EMAX) return false;
    if (c.mode >= SR && random_bits(c) > (C::FRACTION > 32 ? 32 : C::FRACTION)) return false;
    return c.emin - c.p + C::FRACTION < C::BIAS;
}

// What rounding to nearest even adds before `drop` bits are truncated.
template <class U> GEMMSIM_HD U nearest_increment(U sig, int drop) {
    const U mask = ((U)1 << drop) - 1;
    return (mask >> 1) + ((sig >> drop) & 1 & mask);
}

// What the mode adds to the magnitude's pattern before truncation at `drop` bits. `mag + inc` carries into the exponent exactly
// when the significand overflows.
template <class T, Cast C> GEMMSIM_HD Bits<T> increment(Bits<T> mag, Bits<T> sig, int drop, bool neg, uint32_t R) {
    typedef Bits<T> U;
    const U mask = ((U)1 << drop) - 1, lsb = (sig >> drop) & 1;
    if constexpr (C.mode == RNE) return nearest_increment<U>(sig, drop);
    else if constexpr (C.mode == RNA) return (mask + 1) >> 1;
    else if constexpr (C.mode == RND || C.mode == RNU) return (mask + (neg == (C.mode == RND) ? 1 : 0)) >> 1;
    else if constexpr (C.mode == RU) return neg ? 0 : mask;
    else if constexpr (C.mode == RD) return neg ? mask : 0;
    else if constexpr (C.mode == RO) return (mag & mask) != 0 && !lsb ? mask + 1 : 0;
    else if constexpr (C.mode >= SR) {
        const int gap = drop - random_bits(C);
        if (gap < 0) return (U)R >> -gap;
        // SRC first rounds to multiples of 2^-r quanta.
        return ((U)R << gap) + (C.mode == SRC ? nearest_increment<U>(sig, gap) : 0);
    } else return 0;  // RTZ
}

// Whether a magnitude below the smallest quantum is rounded up to it rather than to zero.
template <class T, Cast C> GEMMSIM_HD bool quantum_reached(Bits<T> mag, Bits<T> sig, int drop, bool neg, uint32_t R) {
    constexpr bool ftz = (C.flags & NO_SUBNORMALS) != 0;
    constexpr Bits<T> half = power_bits<T>((ftz ? C.emin : C.emin - C.p + 1) - 1);
    if constexpr (C.mode == RNE) return mag > half;
    else if constexpr (C.mode == RNA) return mag >= half && mag != 0;
    else if constexpr (C.mode == RND || C.mode == RNU) return mag > half || (mag == half && mag != 0 && neg == (C.mode == RND));
    else if constexpr (C.mode == RU) return mag != 0 && !neg;
    else if constexpr (C.mode == RD) return mag != 0 && neg;
    else if constexpr (C.mode == RO) return mag != 0;
    else if constexpr (C.mode >= SR) {
        typedef Bits<T> U;
        const int gap = drop - random_bits(C);  // not negative: drop > FRACTION >= random_bits
        const U kept = gap < (int)sizeof(T) * 8 ? (sig + (C.mode == SRC ? nearest_increment<U>(sig, gap) : 0)) >> gap : 0;
        return kept + R >= ((U)1 << random_bits(C));
    } else return false;
}

// Rounds x once to C. R: the draw of a stochastic mode, uniform in [0, 2^rbits). NaN becomes the canonical one.
template <class T, Cast C> GEMMSIM_HD T round_bits(T x, uint32_t R) {
    static_assert(carrier_rounds<T>(C));
    typedef Bits<T> U;
    typedef Carrier<T> K;
    if constexpr (C.mode == SRB) R = 2 * R + 1;
    constexpr bool ftz = (C.flags & NO_SUBNORMALS) != 0;
    constexpr int base = K::FRACTION + 1 - C.p;
    constexpr U quantum = power_bits<T>(ftz ? C.emin : C.emin - C.p + 1);
    const U u = to_bits(x), mag = u & ~K::SIGN;
    const bool neg = (u & K::SIGN) != 0;
    const int field = (int)(mag >> K::FRACTION), e = field > 1 ? field : 1;
    const int below = C.emin + K::BIAS - e;  // never positive where the target's exponents reach as low as the carrier's
    int drop = C.emin > 1 - K::BIAS && below > 0 ? base + below : base;
    const bool flushed = ftz && mag < quantum;  // no subnormals: one quantum of 2^emin below 2^emin
    if (ftz && flushed) drop += C.p - 1;
    const U sig = (mag & (((U)1 << K::FRACTION) - 1)) | (field != 0 ? (U)1 << K::FRACTION : 0);
    U r;
    if (drop > K::FRACTION || flushed) {
        r = quantum_reached<T, C>(mag, sig, drop, neg, R) ? quantum : 0;
    } else {
        r = (mag + increment<T, C>(mag, sig, drop, neg, R)) & ~(((U)1 << drop) - 1);
    }
    T v = from_bits<T>(r | (u & K::SIGN));
    if (v > (T)C.hi) v = (T)C.over_pos;
    if (v < (T)C.lo) v = (T)C.over_neg;
    if (mag == K::EXPONENT) v = neg ? (T)C.inf_neg : (T)C.inf_pos;
    if constexpr (!(C.flags & NEG_ZERO)) v = add_rn(v, (T)0);
    return mag > K::EXPONENT ? quiet_nan<T>() : v;
}

}  // namespace gemmsim
