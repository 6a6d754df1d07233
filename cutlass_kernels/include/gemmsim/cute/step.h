// Defines an atom's step in terms of CUTLASS's number types.
#pragma once
#include <cutlass/numeric_types.h>
#include "gemmsim/device/unchecked_steps.h"
#include "gemmsim/formats.h"

namespace gemmsim {

// What the type of an operand proves about its numbers. For float this is no more than float's own format.
template <class X> struct FactsOf {
    static_assert(sizeof(X) == 0, "gemmsim knows no numbers of this type: specialise FactsOf, or say the facts in multiply_add");
};
#define GEMMSIM_FACTS(TYPE, BITS, QUANTUM, TOP)                     \
    template <> struct FactsOf<TYPE> {                              \
        static constexpr OperandFacts value = {BITS, QUANTUM, TOP}; \
    };
GEMMSIM_FACTS(float, 24, -149, 128)
GEMMSIM_FACTS(double, 53, -1074, 1024)
GEMMSIM_FACTS(cutlass::half_t, 11, -24, 16)
GEMMSIM_FACTS(cutlass::bfloat16_t, 8, -133, 128)
GEMMSIM_FACTS(cutlass::float_e4m3_t, 4, -9, 9)
GEMMSIM_FACTS(cutlass::float_e5m2_t, 3, -16, 16)
GEMMSIM_FACTS(cutlass::float_e3m2_t, 3, -4, 5)
GEMMSIM_FACTS(cutlass::float_e2m3_t, 4, -3, 3)
GEMMSIM_FACTS(cutlass::float_e2m1_t, 2, -1, 3)
GEMMSIM_FACTS(int8_t, 7, 0, 8)
#undef GEMMSIM_FACTS

GEMMSIM_HD constexpr bool float_has(const OperandFacts& x) { return x.bits <= 24 && x.quantum >= -149 && x.top <= 128; }

template <class T> GEMMSIM_HD constexpr bool carrier_has(const Cast& c, bool fp32) {
    return (is_native<T>(c) && (!fp32 || sizeof(T) == 4)) || fits<T>(c, !fp32);
}

// `k` with the narrowest carrier that is exact for operands, roundings and, if given, totals of another format.
GEMMSIM_HD constexpr StepConfig carried(StepConfig k, const Cast* total = nullptr) {
    const bool narrow = float_has(k.a) && float_has(k.b), fp32 = k.fp32 != 0;
    const bool in_float =
        carrier_has<float>(k.add, fp32) && (k.fused || carrier_has<float>(k.mul, fp32)) && (!total || carrier_has<float>(*total, fp32));
    const bool in_double =
        carrier_has<double>(k.add, fp32) && (k.fused || carrier_has<double>(k.mul, fp32)) && (!total || carrier_has<double>(*total, fp32));
    k.carrier = (narrow || fp32) && in_float ? 0 : !fp32 && in_double ? 1 : 2;
    return k;
}
GEMMSIM_HD constexpr StepConfig holding(const StepConfig& k, const Cast& total) { return carried(k, &total); }

// s = R_add(s + a b), rounded once from the exact value.
GEMMSIM_HD constexpr StepConfig multiply_add(const OperandFacts& a, const OperandFacts& b, const Cast& add) {
    return carried(StepConfig{.mul = Cast{}, .add = add, .a = a, .b = b, .fused = 1, .fp32 = 0, .carrier = 2, .any_start = 0});
}
template <class A, class B> GEMMSIM_HD constexpr StepConfig multiply_add(const Cast& add) {
    return multiply_add(FactsOf<A>::value, FactsOf<B>::value, add);
}
// s = R_add(s + R_mul(a b)).
GEMMSIM_HD constexpr StepConfig multiply_then_add(const OperandFacts& a, const OperandFacts& b, const Cast& mul, const Cast& add) {
    return carried(StepConfig{.mul = mul, .add = add, .a = a, .b = b, .fused = 0, .fp32 = 0, .carrier = 2, .any_start = 0});
}
template <class A, class B> GEMMSIM_HD constexpr StepConfig multiply_then_add(const Cast& mul, const Cast& add) {
    return multiply_then_add(FactsOf<A>::value, FactsOf<B>::value, mul, add);
}
// The same with each operation rounded to binary32 before the cast: arithmetic=fp32 of a spec.
GEMMSIM_HD constexpr StepConfig in_fp32(StepConfig k) {
    k.fp32 = 1;
    return carried(k);
}
// The same where the register may start from a number outside its format, such as an addend.
GEMMSIM_HD constexpr StepConfig from_any_number(StepConfig k) {
    k.any_start = 1;
    return k;
}

GEMMSIM_HD constexpr bool is_random(const StepConfig& k) { return k.add.mode >= SR || (!k.fused && k.mul.mode >= SR); }

// What the caller guarantees of the numbers. The bits are those of ANY where the guarantee holds, and undefined where it does not.
//   ANY       nothing: NaN, infinities, subnormals, overflow
//   IN_RANGE  all are finite, and no sum, before or after it is rounded, reaches StepInRange<K, false>::LIMIT in magnitude
//             (and no product that is rounded by itself reaches LIMIT_MUL)
//   ON_GRID   also, products are multiples of 2^QUANTUM with at most WIDTH significant bits, as StepInRange<K, true> states
enum class Range { ANY, IN_RANGE, ON_GRID };

template <StepConfig K, Range RANGE> struct StepOf {
    static constexpr bool BY_DATA = RANGE == Range::ON_GRID && StepInRange<K, true>::POSSIBLE;
    typedef StepInRange<K, BY_DATA> type;
    static_assert(type::POSSIBLE, "this step has no form without range checks: take Range::ANY");
};
template <StepConfig K> struct StepOf<K, Range::ANY> {
    typedef Step<K> type;
};

}  // namespace gemmsim
