// What the formats alone prove about a step of a product, decided when its kernel is compiled. The lemmas are those of the CPU's
// planner (cpu/product/kernel_choice.h, docs/design/cpu.md).
#pragma once
#include "gemmsim/device/round_cast.h"
#include "gemmsim/device/storage.h"

namespace gemmsim {

template <class T> struct CarrierFacts {
    static constexpr int BITS = Carrier<T>::FRACTION + 1, EMAX = Carrier<T>::EMAX, LEAST = 1 - Carrier<T>::BIAS - Carrier<T>::FRACTION;
};

// The comparison of x with itself is necessary, because NVRTC does not order NaN in constants.
GEMMSIM_HD constexpr bool is_finite(double x) { return x == x && x >= -0x1.fffffffffffffp1023 && x <= 0x1.fffffffffffffp1023; }
GEMMSIM_HD constexpr double magnitude(double x) { return x < 0 ? -x : x; }
GEMMSIM_HD constexpr double smaller(double x, double y) { return x < y ? x : y; }
GEMMSIM_HD constexpr double larger(double x, double y) { return x > y ? x : y; }

// The finite values of an operand: their significant bits; they are multiples of 2^quantum with magnitudes below 2^top.
struct OperandFacts {
    int bits, quantum, top;
};
GEMMSIM_HD constexpr OperandFacts dtype_facts(int dtype) {
    return dtype == F32    ? OperandFacts{24, -149, 128}
           : dtype == F64  ? OperandFacts{53, -1074, 1024}
           : dtype == F16  ? OperandFacts{11, -24, 16}
           : dtype == BF16 ? OperandFacts{8, -133, 128}
                           : OperandFacts{53, -1074, 1024};
}
GEMMSIM_HD constexpr OperandFacts operand_facts(const Cast& c, int dtype) {
    const OperandFacts d = dtype_facts(dtype);
    if (!(c.flags & PRESENT)) return d;
    const int quantum = c.emin - c.p + 1;
    const bool exact = c.p >= d.bits && quantum <= d.quantum;  // else the largest number may be rounded up to 2^top
    int top = d.top + (exact ? 0 : 1);
    // Infinities may become the format's largest number, which the dtype need not represent.
    if (is_finite(c.hi) && (is_finite(c.inf_pos) || is_finite(c.inf_neg) || c.emax + 1 < top)) top = c.emax + 1;
    return OperandFacts{c.p < d.bits ? c.p : d.bits, quantum > d.quantum ? quantum : d.quantum, top};
}

// Whether rounding to nearest in the carrier is rounding to the format.
template <class T> GEMMSIM_HD constexpr bool is_native(const Cast& c) {
    const bool inf =
        !is_finite(c.over_pos) && !is_finite(c.over_neg) && !is_finite(c.inf_pos) && !is_finite(c.inf_neg) && c.over_pos == c.inf_pos;
    return c.mode == RNE && c.p == CarrierFacts<T>::BITS && c.emin == 1 - Carrier<T>::BIAS && c.emax == CarrierFacts<T>::EMAX && inf &&
           (c.flags & NEG_ZERO) && !(c.flags & NO_SUBNORMALS);
}

// Whether one rounding of a carrier number is right. If `spare`, that number is rounded to odd, which needs two more bits below the
// last place, or one more below the last random bit. Otherwise the number is taken unchanged.
template <class T> GEMMSIM_HD constexpr bool fits(const Cast& c, bool spare) {
    if (!carrier_rounds<T>(c) || c.mode > SR || (c.flags & CODE_PARITY)) return false;  // no lemma covers sums of those
    const int extra = !spare ? 0 : c.mode == SR ? c.rbits + 1 : 2;
    return c.p + extra <= CarrierFacts<T>::BITS && (c.mode != SR || c.rbits <= CarrierFacts<T>::BITS - 1);
}

// Whether overflow gives what an infinity gives. A sum too large for the carrier is an infinity when rounded to nearest, and the
// largest number when rounded to odd.
GEMMSIM_HD constexpr bool overflow_like_infinity(const Cast& c) {
    return same_number(c.inf_pos, c.over_pos) && same_number(c.inf_neg, c.over_neg);
}
template <class T> GEMMSIM_HD constexpr bool has_room(const Cast& c) {
    return c.emax < CarrierFacts<T>::EMAX - 1 || overflow_like_infinity(c);
}

// Lemma A (docs/design/cpu.md). Premise: nearest even to p bits, addends of at most p significant bits, 2 p <= bits - 1, and room
// for the sum. Conclusion: the carrier's nearest sum, rounded to p bits, is the correctly rounded sum.
template <class T> GEMMSIM_HD constexpr bool lemma_a(const Cast& add, int width) {
    return add.mode == RNE && width <= add.p && 2 * add.p <= CarrierFacts<T>::BITS - 1 && has_room<T>(add);
}

// What the formats prove of a register that takes products of operands a and b.
template <class T> struct ProductFacts {
    int width, quantum, top;  // of exact products, defined as for operands
    bool exact;               // exact: every product is exact in the carrier

    constexpr ProductFacts(const OperandFacts& a, const OperandFacts& b)
        : width(a.bits + b.bits), quantum(a.quantum + b.quantum), top(a.top + b.top), exact(width <= CarrierFacts<T>::BITS && in_range()) {}
    constexpr bool in_range() const { return quantum >= CarrierFacts<T>::LEAST && top <= CarrierFacts<T>::EMAX; }

    // Every sum of a product and a value of `add` is a carrier number. This is lemma B with the formats' own bounds.
    constexpr bool sums_exact(const Cast& add) const {
        if (!in_range() || !is_finite(add.hi) || !is_finite(add.lo) || quantum + CarrierFacts<T>::BITS > 1000) return false;
        const double most = larger(magnitude(add.hi), magnitude(add.lo)) + power<double>(top);
        return most < power<double>(quantum + CarrierFacts<T>::BITS);
    }
    // The carrier's fused multiply-add, rounded once more, is correctly rounded.
    constexpr bool near_fused(const Cast& add) const {
        return in_range() && width <= CarrierFacts<T>::BITS && (lemma_a<T>(add, width) || sums_exact(add));
    }
    // No sum lies between zero and the smallest quantum of `c`.
    constexpr bool on_grid(const Cast& c) const { return quantum >= (c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1); }
};

// Whether the carrier's nearest sum suffices for sums of values of `other` and of `add`, both rounded already.
template <class T> GEMMSIM_HD constexpr bool near_sum(const Cast& add, const Cast& other) {
    return lemma_a<T>(add, other.p) && other.emax < CarrierFacts<T>::EMAX - 1;
}

}  // namespace gemmsim
