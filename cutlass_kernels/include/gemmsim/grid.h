// Rounds to value sets that are not one FloatFormat, or not to their nearest value: supernormal floats, the old binary8 rules, and
// block floating point of one number. The code is exact and scalar. cutlass_kernels/cpu/casts/grids.cpp has the vector forms.
// exact.h includes this header and has its building blocks.
#pragma once
#include "gemmsim/exact.h"

namespace gemmsim {

// A magnitude counted in quanta of 2^q: the whole part, the fraction over 2^64 (floor), and whether anything lies below.
struct Counted {
    uint64_t whole, frac;
    bool more;
};

GEMMSIM_HD Counted count_quanta(const Exact& x, int q) {
    const int drop = q - x.exp;
    if (drop <= 0) return Counted{(uint64_t)(x.mag << (-drop < 127 ? -drop : 127)), 0, x.sticky};
    if (drop >= 128) {
        const int s = drop - 64;
        const bool gone = s >= 128 ? x.mag != 0 : (x.mag & (((u128)1 << s) - 1)) != 0;
        return Counted{0, s >= 128 ? 0 : (uint64_t)(x.mag >> s), x.sticky || gone};
    }
    const u128 rest = x.mag & (((u128)1 << drop) - 1);
    const uint64_t whole = (uint64_t)(x.mag >> drop);
    if (drop <= 64) return Counted{whole, drop == 64 ? (uint64_t)rest : (uint64_t)rest << (64 - drop), x.sticky};
    return Counted{whole, (uint64_t)(rest >> (drop - 64)), x.sticky || (rest & (((u128)1 << (drop - 64)) - 1)) != 0};
}

// The first and last binade with p bits of a supernormal format, and its smallest power of two.
struct Binades {
    int first, last, lowest;
};

GEMMSIM_HD Binades binades_of(const Cast& c) {
    const uint32_t f = (uint32_t)c.flags;
    return Binades{c.emin + (int)(f >> GRID_SHIFT & GRID_MASK), c.emax - (int)(f >> (GRID_SHIFT + 11) & GRID_MASK), c.emin - c.p + 1};
}

// Whether the lower neighbour of a value in [2^e, 2^(e+1)), outside those binades, is the one that a tie leaves (RNE), or has an
// odd code (RO). `below`: the value is in [0, smallest value), and its lower neighbour is zero.
GEMMSIM_HD bool power_is_odd(const Cast& c, const Binades& b, int e, bool below) {
    if (c.mode != RO) return c.flags & EVEN_EXPONENT ? !below && (e & 1) != 0 : true;
    if (below) return false;
    return ((e < b.first ? b.first - e : e - b.last - 1) & 1) != 0;
}

GEMMSIM_HD double round_supernormal(const Exact& x, const Cast& c, uint32_t R) {
    const Binades b = binades_of(c);
    const int e = x.mag == 0 ? -100000 : bit_length(x.mag) - 1 + x.exp;
    const bool below = e < b.lowest, inside = !below && e >= b.first && e <= b.last;
    const int q = below ? b.lowest : inside ? e - c.p + 1 : e;
    Counted n = count_quanta(x, q);
    const bool odd = inside ? (n.whole & 1) != 0 : power_is_odd(c, b, e, below);
    if (round_up(c.mode, c.rbits, R, x.neg, odd, n.frac, n.more)) ++n.whole;
    return finish(c, scale2((double)n.whole, q), x.neg);
}

// Rounds to p bits from 2^emin on, with uniform quanta below. Of the lowest values only those above 2^emin exist: {0, 2^emin +
// quantum, ...}.
GEMMSIM_HD double round_first_is_zero(const Exact& x, const Cast& c, uint32_t R) {
    const int e = x.mag == 0 ? -100000 : bit_length(x.mag) - 1 + x.exp;
    const int q0 = c.emin - c.p + 1, q = (e > c.emin ? e : c.emin) - c.p + 1;
    const uint64_t first = (1ull << (c.p - 1)) + 1;
    Counted n = count_quanta(x, q);
    // Between zero and the smallest value, the fraction counts in units of that value.
    if (q == q0 && n.whole < first) {
        const u128 total = (u128)n.whole << 64 | n.frac, share = total / first;
        const bool up = round_up(c.mode, c.rbits, R, x.neg, false, (uint64_t)share, n.more || share * first != total);
        return finish(c, up ? scale2((double)first, q0) : 0.0, x.neg);
    }
    if (round_up(c.mode, c.rbits, R, x.neg, (n.whole & 1) != 0, n.frac, n.more)) ++n.whole;
    return finish(c, scale2((double)n.whole, q), x.neg);
}

// Block floating point with one block per number. `v` is a number of exponent `e`, rounded to p bits. If it was rounded up to
// 2^(e+1), it becomes its binade's last value, (1 - 2^-p) 2^(e+1). Negative numbers have one integer more if lo < -hi. p may be 0.
// The function is short, because architectures that call exact.h out of line still compile it into every kernel.
GEMMSIM_HD double without_carry(double v, int e, const Cast& c) {
    const int reached = (int)(bits_of(v) >> 52 & 0x7FF) - 1023;
    if (reached <= (e > c.emin ? e : c.emin) || (v < 0 && c.lo < -c.hi)) return v;
    return v * (1.0 - double_of((uint64_t)(1023 - c.p) << 52)) + 0.0;
}

GEMMSIM_HD double round_grid(const Exact& x, const Cast& c, uint32_t R) {
    const bool zero = x.mag == 0 && !x.sticky;
    if (zero) return finish(c, 0.0, x.neg);
    if ((c.flags & NEGATIVE_NAN) && x.neg) return canonical_nan();
    if (c.flags & SUPERNORMAL) return round_supernormal(x, c, R);
    if (c.flags & FIRST_IS_ZERO) return round_first_is_zero(x, c, R);
    const bool stays = c.flags & NO_CARRY;
    const int e = x.mag == 0 ? -100000 : bit_length(x.mag) - 1 + x.exp;
    if (stays && e > 127) return x.neg ? c.over_neg : c.over_pos;
    Cast plain = c;
    plain.flags &= ~(int32_t)(NEGATIVE_NAN | NO_CARRY);
    if (stays || c.p > 1) plain.flags &= ~(int32_t)CODE_PARITY;
    const double v = round_exact(x, plain, R);
    return stays ? without_carry(v, e, c) : v;
}

}  // namespace gemmsim
