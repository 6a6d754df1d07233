// Element-wise casts to irregular value sets (grid.h) and with ties to the even code, as integer arithmetic on the carrier's bit
// pattern. Accumulators of products do not round with these, because no lemma bounds their sums (facts.h).
#pragma once
#include "gemmsim/device/round_cast.h"

namespace gemmsim {

// `c` without `flags`: the rounding of numbers that those flags do not affect. Only powers of two have ties to the even code.
GEMMSIM_HD constexpr Cast without(Cast c, int flags) {
    c.flags &= ~flags;
    if ((c.p > 1 || (flags & NO_CARRY)) && !(c.flags & ANY_GRID) && c.mode >= RNE) c.flags &= ~CODE_PARITY;
    return c;
}

// Whether carrier T can round its own values to such a `c` with GridCast.
template <class T> GEMMSIM_HD constexpr bool grid_rounds(const Cast& c) {
    typedef Carrier<T> K;
    const int lowest = c.emin - c.p + 1, bits = c.mode >= SR ? random_bits(c) : 0;
    if (c.p < 1 || c.p > K::FRACTION + 1 || c.emax > K::EMAX || bits > (K::FRACTION > 32 ? 32 : K::FRACTION)) return false;
    if (c.flags & NEGATIVE_NAN) return false;  // round_element handles these
    if (c.flags & NO_CARRY) return lowest == 1 - K::BIAS - K::FRACTION || carrier_rounds<T>(without(c, NO_CARRY));
    if (c.flags & SUPERNORMAL) return lowest >= 1 - K::BIAS;
    // Thresholds of random roundings have p + bits significant bits.
    if (c.flags & FIRST_IS_ZERO) return c.mode != SRC && lowest - bits >= 1 - K::BIAS && (bits == 0 || c.p + bits <= K::FRACTION + 1);
    return c.p == 1 && (c.flags & CODE_PARITY) && !(c.flags & ANY_GRID) && c.emin >= -K::BIAS && bits < K::FRACTION;
}

template <class T, Cast C> struct GridCast {
    static_assert(grid_rounds<T>(C));
    typedef Bits<T> U;
    typedef Carrier<T> K;
    typedef Guard<T, C> G;
    static constexpr U ONE = (U)1 << K::FRACTION;
    static constexpr int LOWEST = C.emin - C.p + 1, DROP = K::FRACTION + 1 - C.p;

    static GEMMSIM_HD T apply(T x, uint32_t R) {
        if constexpr (C.mode == SRB) R = 2 * R + 1;
        const bool neg = (to_bits(x) & K::SIGN) != 0;
        const T size = G::CLAMPS && G::SYMMETRIC ? min_number(without_sign(x), (T)C.hi) : without_sign(x);
        const U mag = to_bits(size);
        if constexpr (C.flags & NO_CARRY) return finished(x, without_carry_bits(mag, neg, R));
        else if constexpr (C.flags & SUPERNORMAL) return finished(x, powers(mag, neg, R));
        else if constexpr (C.flags & FIRST_IS_ZERO) return finished(x, after_gap(mag, neg, R));
        else return finished(x, codes(mag, neg, R));
    }

private:
    static GEMMSIM_HD U significand(U mag) { return (mag & (ONE - 1)) | (mag >= ONE ? ONE : 0); }

    // Whether floor(x / first 2^r) + R >= 2^r. The threshold (2^r - R) first / 2^r is a number of the carrier.
    static GEMMSIM_HD bool share_reaches(U mag, T first, uint32_t R) {
        return from_bits<T>(mag) >= mul_rn(add_rn(power<T>(random_bits(C)), -(T)R), first * power<T>(-random_bits(C)));
    }

    // Whether a magnitude rounds to `smallest` = 2^LOWEST or more, not to zero.
    static GEMMSIM_HD bool reached(U mag, bool neg, uint32_t R) {
        constexpr U smallest = power_bits<T>(LOWEST), half = power_bits<T>(LOWEST - 1);
        // A tie between zero and a power of two goes to the larger one, or to zero, which is even as a code and as an exponent.
        constexpr bool tie_up = (C.flags & SUPERNORMAL) && !(C.flags & EVEN_EXPONENT);
        if constexpr (C.mode == RNE) return tie_up ? mag >= half : mag > half;
        else if constexpr (C.mode == RNA) return mag >= half;
        else if constexpr ((C.mode == SR || C.mode == SRB) && LOWEST - random_bits(C) >= 1 - K::BIAS) {
            return share_reaches(mag, power<T>(LOWEST), R);
        } else {
            const int e = (int)(mag >> K::FRACTION);
            const int drop = K::FRACTION + LOWEST + K::BIAS - (e > 1 ? e : 1);
            return mag >= smallest || quantum_reached<T, C>(mag, significand(mag), drop, neg, R);
        }
    }

    // Values with p bits between two binades, and powers of two around them.
    static GEMMSIM_HD U powers(U size, bool neg, uint32_t R) {
        constexpr U smallest = power_bits<T>(LOWEST), fine = ((U)1 << DROP) - 1, coarse = ONE - 1;
        const Binades b = binades_of(C);
        const U begin = power_bits<T>(b.first), end = power_bits<T>(b.last + 1);
        const U mag = size > smallest ? size : smallest;  // a normal number
        const bool inside = mag >= begin && mag < end;
        const int e = (int)(mag >> K::FRACTION);
        const U low = C.p == 1 ? 1 : mag >> DROP & 1, mask = inside ? fine : coarse;
        U inc;
        if constexpr (C.mode == RNE) {
            const U up = C.flags & EVEN_EXPONENT ? (e - K::BIAS) & 1 : 1;
            inc = inside ? (fine >> 1) + (low & fine) : (coarse >> 1) + up;
        } else if constexpr (C.mode == RO) {
            const U odd = inside ? low : (mag < begin ? b.first + K::BIAS - e : e - b.last - K::BIAS - 1) & 1;
            inc = (mag & mask) != 0 && odd == 0 ? mask + 1 : 0;
        } else {
            inc = increment<T, C>(mag, significand(mag), inside ? DROP : K::FRACTION, neg, R);
        }
        return reached(size, neg, R) ? (mag + inc) & ~mask : 0;
    }

    // Whether a magnitude below the smallest value `first` is rounded up to it rather than to zero. The fraction counts in units of
    // `first`.
    static GEMMSIM_HD bool first_reached(U mag, bool neg, uint32_t R) {
        constexpr T first = (T)((U)1 << (C.p - 1) | 1) * power<T>(LOWEST) * (C.p == 1 ? 2 : 1);
        constexpr U half = to_bits<T>(first / 2);
        if constexpr (C.mode >= SR) return share_reaches(mag, first, R);
        else if constexpr (C.mode == RNE) return mag > half;
        else if constexpr (C.mode == RNA) return mag >= half;
        else if constexpr (C.mode == RND || C.mode == RNU) return mag > half || (mag == half && neg == (C.mode == RND));
        else if constexpr (C.mode == RTZ) return false;
        else return mag != 0 && (C.mode == RO || neg == (C.mode == RD));
    }

    // Values with p bits, except that 2^emin is missing.
    static GEMMSIM_HD U after_gap(U mag, bool neg, uint32_t R) {
        constexpr U first = C.p == 1 ? power_bits<T>(LOWEST + 1) : power_bits<T>(C.emin) + ((U)1 << DROP);
        const U kept = (mag + increment<T, C>(mag, significand(mag), DROP, neg, R)) & ~(((U)1 << DROP) - 1);
        return mag >= first ? kept : first_reached(mag, neg, R) ? first : 0;
    }

    // Powers of two, where the even code takes ties. The lowest may be half the carrier's smallest normal number.
    static GEMMSIM_HD U codes(U size, bool neg, uint32_t R) {
        constexpr U smallest = power_bits<T>(C.emin);
        const U mag = size > smallest ? size : smallest;
        const int e = (int)(mag >> K::FRACTION);
        const int drop = C.emin == -K::BIAS && e == 0 ? K::FRACTION - 1 : K::FRACTION;
        const U mask = ((U)1 << drop) - 1, odd = (e - C.emin - K::BIAS + (C.flags & NO_ZERO ? 0 : 1)) & 1;
        U inc;
        if constexpr (C.mode == RNE) inc = (mask >> 1) + odd;
        else if constexpr (C.mode == RO) inc = (mag & mask) != 0 && odd == 0 ? mask + 1 : 0;
        else inc = increment<T, C>(mag, significand(mag), drop, neg, R);
        return reached(size, neg, R) ? (mag + inc) & ~mask : 0;
    }

    // Values with p bits in every binade. A number that would round up to the next binade becomes the last value of its own.
    // Negative numbers are an exception where integers have one more there. Numbers below the carrier's normal ones are scaled to
    // normal ones.
    static GEMMSIM_HD U without_carry_bits(U size, bool neg, uint32_t R) {
        constexpr bool scales = C.emin < 1 - K::BIAS;
        constexpr T up = power<T>(K::FRACTION + 1), down = power<T>(-K::FRACTION - 1);
        constexpr U mask = ((U)1 << DROP) - 1, least = power_bits<T>(C.emin);
        if (size >= K::EXPONENT) return size;
        const bool scaled = scales && size < ONE;
        const U mag = scaled ? to_bits(mul_rn(from_bits<T>(size), up)) : size;
        const U last = (mag | (ONE - 1)) & ~mask, sum = (mag + increment<T, C>(mag, significand(mag), DROP, neg, R)) & ~mask;
        const U r = sum > last && !(C.lo < -C.hi && neg) ? last : sum;
        if (size < least) return below_least(size, neg, R);
        return scaled ? to_bits(mul_rn(from_bits<T>(r), down)) : r;
    }
    // Rounds to multiples of 2^LOWEST below 2^emin. A number that rounds up to 2^emin stays there.
    static GEMMSIM_HD U below_least(U mag, bool neg, uint32_t R) {
        if constexpr (LOWEST == 1 - K::BIAS - K::FRACTION) return mag;
        else
            return to_bits(
                without_sign(round_bits<T, without(C, NO_CARRY)>(from_bits<T>(neg ? mag | K::SIGN : mag), C.mode == SRB ? R >> 1 : R)));
    }

    // The result for x of rounded magnitude r: handles zero, overflow, infinities and NaN.
    static GEMMSIM_HD T finished(T x, U r) {
        if constexpr (G::SYMMETRIC) {
            const Rounded<T> v = G::after_magnitude(x, from_bits<T>(r));
            return v.nan ? quiet_nan<T>() : v.value;
        } else {
            T v = from_bits<T>(r | (to_bits(x) & K::SIGN));
            if constexpr (!(C.flags & NEG_ZERO)) v = add_rn(v, (T)0);
            if constexpr (C.flags & NO_ZERO) v = r == 0 ? (T)C.lo : v;
            if constexpr (G::CLAMPS) v = min_number(max_number(v, (T)C.lo), (T)C.hi);
            return G::after(x, v);
        }
    }
};

// Whether only 128-bit integers can compute an element-wise cast.
GEMMSIM_HD constexpr bool element_needs_exact(const Cast& c) {
    const Cast rest = c.flags & NEGATIVE_NAN && c.inf_neg != c.inf_neg ? without(c, NEGATIVE_NAN) : c;
    return needs_exact(rest) && !grid_rounds<double>(rest);
}

// Whether float has all values except the lowest, -2^128. That value then is an infinity, as it is in each dtype of at most 32
// bits.
GEMMSIM_HD constexpr bool lowest_is_infinite(const Cast& c) { return (c.flags & NO_CARRY) && c.lo == -0x1p128 && c.emax == 128; }
GEMMSIM_HD constexpr Cast with_infinite_lowest(Cast c) {
    const double lo = -number(0x7FFull << 52);
    c.emax = 127;
    c.lo = c.over_neg = c.inf_neg = lo;
    return c;
}

// round_cast for an element of a tensor, in the same types. WIDE: the result is stored as float64.
template <Cast C, bool WIDE, class T> GEMMSIM_HD auto round_element(T x, uint32_t R) {
    if constexpr (!WIDE && sizeof(T) == 4 && lowest_is_infinite(C) && grid_rounds<T>(with_infinite_lowest(C))) {
        return GridCast<T, with_infinite_lowest(C)>::apply(x, R);
    } else if constexpr (C.flags & NEGATIVE_NAN && !element_needs_exact(C)) {
        const auto v = round_element<without(C, NEGATIVE_NAN), WIDE>(x, R);
        return x < 0 ? quiet_nan<decltype(v + 0)>() : v;
    } else if constexpr (!carrier_rounds<T>(C) && grid_rounds<T>(C)) {
        return GridCast<T, C>::apply(x, R);
    } else if constexpr (!carrier_rounds<double>(C) && grid_rounds<double>(C)) {
        return GridCast<double, C>::apply((double)x, R);
    } else {
        return round_cast<C>(x, R);
    }
}

}  // namespace gemmsim
