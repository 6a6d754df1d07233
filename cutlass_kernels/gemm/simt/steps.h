// Turns a product's configuration into the steps of its register (device/step.h), and says which products take packed instructions or
// ordinary integers.
#pragma once
#include "gemm/simt/config.h"
#include "gemmsim/device/step.h"

namespace gemmsim {

GEMMSIM_HD constexpr StepConfig step_config(const GemmConfig& k) {
    return StepConfig{.mul = k.mul,
                      .add = k.add,
                      .a = operand_facts(k.cast_a, k.a),
                      .b = operand_facts(k.cast_b, k.b),
                      .fused = k.fused,
                      .fp32 = k.fp32,
                      .carrier = k.carrier,
                      .any_start = k.init == C_FIRST};
}

template <GemmConfig K> struct Steps : Step<step_config(K)> {
    static_assert(K.method > FAST_TWO_SUM || Step<step_config(K)>::FITS, "the carrier does not hold the register");
};

// POSSIBLE: the register is binary16 or bfloat16, and the operands are numbers of that format. Packed instructions then round as the
// register does.
template <GemmConfig K> struct PackedFormat {
    static constexpr DType DTYPE = K.add.p == 11 ? F16 : BF16;
    static constexpr OperandFacts A = operand_facts(K.cast_a, K.a), B = operand_facts(K.cast_b, K.b), OWN = dtype_facts(DTYPE);
    static constexpr bool within(const OperandFacts& x) { return x.bits <= OWN.bits && x.quantum >= OWN.quantum && x.top <= OWN.top; }
    static constexpr bool IS_DTYPE = K.add.mode == RNE && K.add.p == OWN.bits && K.add.emin - K.add.p + 1 == OWN.quantum &&
                                     K.add.emax + 1 == OWN.top && overflow_like_infinity(K.add) && !is_finite(K.add.over_pos) &&
                                     K.add.over_pos == K.add.over_pos && (K.add.flags & NEG_ZERO) && !(K.add.flags & NO_SUBNORMALS);
    static constexpr bool POSSIBLE = K.method == REGISTER && K.fused && !K.fp32 && K.init != C_FIRST && IS_DTYPE && within(A) && within(B);
};

// POSSIBLE: the formats prove that operands are whole numbers of few bits, unless they are not finite. Ordinary integers then hold all
// sums. Panels have int32 elements, and an operand that is not finite is NOT_WHOLE.
constexpr int32_t NOT_WHOLE = -0x7FFFFFFF - 1;
template <GemmConfig K> struct SmallIntegers {
    static constexpr OperandFacts A = operand_facts(K.cast_a, K.a), B = operand_facts(K.cast_b, K.b);
    static constexpr bool WHOLE =
        A.quantum >= 0 && B.quantum >= 0 && A.top <= 30 && B.top <= 30 && K.method == INTEGER && K.reg.shift == 0 && !K.count;
    static constexpr int TERM = A.top + B.top, BITS = K.reg.bits, MOST = TERM > BITS ? TERM : BITS;
    // Wrapped sums are right modulo 2^32 or 2^64 all the time. Saturated sums must not overflow the integers between two range checks.
    static constexpr bool IN_32 = WHOLE && (!K.reg.saturate ? BITS <= 32 : !K.reg.at_end && MOST <= 30);
    static constexpr bool IN_64 = WHOLE && (!K.reg.saturate ? true : K.reg.at_end ? TERM <= 31 : MOST <= 62);
    static constexpr bool POSSIBLE = IN_32 || IN_64;
};

}  // namespace gemmsim
