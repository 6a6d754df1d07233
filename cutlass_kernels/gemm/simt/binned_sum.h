// The registers of exact sums by exponent (gemmsim.arithmetic.Binned; Natesh et al., "MGS", 2025), for binned_run.h. A register is the
// two's complement sum of products of one exponent. Its unit is the last bit that such a product can have.
#pragma once
#include "gemm/simt/integer_sum.h"

namespace gemmsim {

// A register in one integer of type INT. `product` is the number of significand bits of a product, whose leading bit is the top one of
// them. `carry` is the number of bits above.
template <class INT> struct NarrowBin {
    INT sum;

    static GEMMSIM_HD NarrowBin zero() { return NarrowBin{0}; }
    GEMMSIM_HD bool empty() const { return sum == 0; }
    GEMMSIM_HD NarrowBin plus(u128 mag, bool neg) const { return NarrowBin{neg ? (INT)(sum - (INT)mag) : (INT)(sum + (INT)mag)}; }
    GEMMSIM_HD bool within(int product, int carry) const {  // [-2^(e + carry), 2^(e + carry))
        const INT rest = sum >> (product - 1 + carry);
        return rest == 0 || rest == -1;
    }
    // Returns R(s + sum * 2^unit) for a finite s. `sum` has at most 124 bits, which exact_sum() takes.
    GEMMSIM_HD double spilled(double s, int unit, const Cast& c, uint32_t R) const {
        const i128 x = (i128)sum;
        return round_exact(exact_sum(Exact{x < 0 ? (u128)0 - (u128)x : (u128)x, unit, x < 0, false}, exact_value(s)), c, R);
    }
};

// A register of 192 bits, for products of doubles with many carry bits.
struct WideBin {
    uint64_t low, middle, top;

    static GEMMSIM_HD WideBin zero() { return WideBin{0, 0, 0}; }
    GEMMSIM_HD bool empty() const { return (low | middle | top) == 0; }
    GEMMSIM_HD i128 high() const { return (i128)((u128)top << 64 | middle); }
    GEMMSIM_HD WideBin plus(u128 mag, bool neg) const {
        const u128 x = neg ? (u128)low - (uint64_t)mag : (u128)low + (uint64_t)mag;
        const u128 part = (mag >> 64) + (u128)((uint64_t)(x >> 64) & 1), up = neg ? (u128)high() - part : (u128)high() + part;
        return WideBin{(uint64_t)x, (uint64_t)up, (uint64_t)(up >> 64)};
    }
    GEMMSIM_HD bool within(int product, int carry) const {  // compares the bits above the low 64, because product > 64
        const i128 rest = high() >> (product - 1 - 64 + carry);
        return rest == 0 || rest == -1;
    }
    GEMMSIM_HD double spilled(double s, int unit, const Cast& c, uint32_t R) const {
        const bool neg = high() < 0;
        const uint64_t mag_low = neg ? 0 - low : low;
        const i128 mag_high = neg ? -high() - (low != 0) : high();
        LongSum<double> sum;
        sum.clear();
        sum.add(exact_value(s));
        sum.add(Exact{mag_low, unit, neg, false});
        sum.add(Exact{(u128)mag_high, unit + 64, neg, false});
        return sum.round(c, R);
    }
};

}  // namespace gemmsim
