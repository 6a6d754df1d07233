// Two's complement registers of any products, in integers of 128 bits. It is slow but takes all operands; integer_run.h has a faster
// way for whole operands of few bits.
#pragma once
#include "gemm/simt/config.h"
#include "gemmsim/device/long_sum.h"

namespace gemmsim {

typedef __int128 i128;

// A sum that is brought into its range after each addition, or once at the end.
struct IntegerSum {
    i128 low, high, s;
    int64_t overflows;  // number of times that the sum left the range

    GEMMSIM_HD void start(const Register& g) {
        low = g.is_signed ? -((i128)1 << (g.bits - 1)) : 0;
        high = low + ((i128)1 << g.bits) - 1;
        s = 0;
        overflows = 0;
    }
    // Brings the sum into its range. `left`: the sum is beyond the range, whatever its low 128 bits are.
    GEMMSIM_HD void fold(const Register& g, bool left) {
        if (s >= low && s <= high && !left) return;
        ++overflows;
        if (g.saturate) s = s < low ? low : high;
        else s = low + (i128)(((u128)s - (u128)low) & (((u128)1 << g.bits) - 1));
    }
    GEMMSIM_HD void add(const Register& g, i128 q, bool left) {
        s = (i128)((u128)s + (u128)q);
        if (!g.at_end) fold(g, left);
    }
    GEMMSIM_HD void jump(bool neg) {  // adds an infinite term
        ++overflows;
        s = neg ? low : high;
    }
    // Brings a sum that may need more than 128 bits into the range, once. Its lowest limb counts ones.
    template <class T> GEMMSIM_HD void fold_long(const Register& g, const LongSum<T>& sum) {
        const bool neg = sum.limb[LongSum<T>::LIMBS - 1] >> 63;
        s = (i128)(((u128)sum.limb[1] << 64) | sum.limb[0]);
        bool left = (s < 0) != neg;
        GEMMSIM_NO_UNROLL for (int i = 2; i < LongSum<T>::LIMBS; ++i) left = left || sum.limb[i] != (neg ? ~0ull : 0ull);
        if (left && g.saturate) s = neg ? low - 1 : high + 1;
        fold(g, left);
    }
};

// Returns the number of integer bits of a product in units of 2^-frac.
GEMMSIM_HD int grid_bits(const Exact& x, const Register& g) { return x.mag == 0 ? 0 : bit_length(x.mag) + x.exp + g.frac; }

// A product of more bits takes every register out of its range, even after a right shift by up to 63.
constexpr int BEYOND = 120;

// Returns the product as a multiple of 2^-frac, rounded by the cast's mode. A number with the same effect on a register of at most
// 53 bits replaces a product that does not fit. For a register that wraps, that is the product's low 128 bits. For one that saturates, it
// is a number of the same sign beyond the range.
GEMMSIM_HD i128 on_grid(const Exact& x, const Register& g, const Cast& c, uint32_t R) {
    if (x.mag == 0) return 0;
    const int drop = -g.frac - x.exp;
    u128 whole;
    if (drop <= 0) {
        if (g.saturate && grid_bits(x, g) > BEYOND) whole = (u128)1 << BEYOND;
        else whole = -drop >= 128 ? 0 : x.mag << -drop;
    } else {
        whole = drop >= 128 ? 0 : x.mag >> drop;
        const u128 rest = drop >= 128 ? x.mag : x.mag & (((u128)1 << drop) - 1);
        uint64_t frac;
        bool more = false;
        if (drop <= 64) frac = drop == 64 ? (uint64_t)rest : (uint64_t)rest << (64 - drop);
        else {
            const int below = drop - 64;
            frac = below >= 128 ? 0 : (uint64_t)(rest >> below);
            more = below >= 128 ? rest != 0 : (rest & (((u128)1 << below) - 1)) != 0;
        }
        if (round_up(c.mode, c.rbits, R, x.neg, whole & 1, frac, more)) ++whole;
    }
    return x.neg ? -(i128)whole : (i128)whole;
}

// Returns floor(p / 2^shift) of a whole product p. The exponent is chosen for a long sum of unit 2^`unit`: its lowest limb counts ones.
GEMMSIM_HD Exact shifted(Exact x, int shift, int unit) {
    const int cut = shift - x.exp;  // number of low bits of the magnitude to discard
    if (cut > 0) {
        const u128 below = cut >= 128 ? x.mag : x.mag & (((u128)1 << cut) - 1);
        x.mag = (cut >= 128 ? 0 : x.mag >> cut) + (x.neg && below ? 1 : 0);
        x.exp = shift;
    }
    x.exp += unit - shift;
    return x;
}

GEMMSIM_HD bool is_whole(double x) {
    const double mag = x < 0 ? -x : x;
    return mag < 0x1p52 ? (double)(int64_t)x == x : mag < number(0x7FFull << 52);
}

}  // namespace gemmsim
