// The codes of a block's elements under the block's factor.
#pragma once
#include "mx/scale.h"

namespace gemmsim {

// What the codes of elements depend on in their block.
struct BlockFacts {
    float factor;  // NaN: the block is NaN
    uint32_t amax;
    bool zeros;    // flushed to zeros
};

// The larger magnitude; NaN if either is NaN.
GEMMSIM_HD float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(fabsf(a)), "f"(fabsf(b)));
    return r;
#else
    const uint32_t u = to_bits(a) & 0x7FFFFFFFu, v = to_bits(b) & 0x7FFFFFFFu;
    return from_bits<float>(u > v ? u : v);  // NaN lies above infinity
#endif
}

// Whether elements that are not numbers occur in blocks whose factor is a number.
template <MxFormat F> GEMMSIM_HD constexpr bool meets_specials() {
    return F.keeps_infinity || F.rule == ScaleRule::LOG2_FLOOR || F.rule == ScaleRule::LOG2_CEIL;
}

// The exponent field that determines the quantum of `a`, at least that of the smallest normal number.
template <MxFormat F> GEMMSIM_HD uint32_t quantum_field(uint32_t a) {
    constexpr uint32_t low = (uint32_t)(F.emin + 127) << 23;
    const uint32_t own = a & INFINITY_BITS;
    return own > low ? own : low;
}

// A code's magnitude: the quanta counted in this field, plus the codes of the fields below it.
template <MxFormat F> GEMMSIM_HD int32_t joined(uint32_t field, int32_t quanta) {
    constexpr int32_t low = (F.emin + 127) << 23, drop = 23 - F.trailing;
    return quanta - (low >> drop) + (int32_t)(field >> drop);  // in this order one instruction adds the shifted field
}

// `a` plus 2^23 of its quanta. The sum's last place is one quantum, so the addition rounds to quanta, ties to even. `a` is at most
// F.max.
template <MxFormat F> GEMMSIM_HD float plus_quanta(float a, uint32_t field) {
    return fma_rn(from_bits<float>(field), power<float>(23 - F.trailing), a);
}

template <MxFormat F> GEMMSIM_HD int32_t code_magnitude(uint32_t a) {
    constexpr int32_t drop = 23 - F.trailing;
    const uint32_t field = quantum_field<F>(a);
    if constexpr (F.rounding == RNE) {
        const uint32_t sum = to_bits(plus_quanta<F>(from_bits<float>(a), field));
        return joined<F>(field, (int32_t)sum - (int32_t)field - (drop << 23));
    } else {
        const uint32_t own = a & INFINITY_BITS;
        uint32_t shift = ((field - own) >> 23) + drop;
        shift = shift < 31 ? shift : 31;
        const uint32_t significand = (a & 0x7FFFFFu) | (own ? 0x800000u : 0u);
        return joined<F>(field, (int32_t)((significand + (F.rounding == RNA ? 1u << (shift - 1) : 0u)) >> shift));
    }
}

// microxcaling's truncation. It takes exponents from its rounded logarithm, so that numbers just below a power of two are counted
// in the quanta above it.
template <MxFormat F> GEMMSIM_HD int32_t truncated_magnitude(uint32_t a, const int32_t* log2_from) {
    if (a == 0) return 0;
    int32_t exponent = log2_step(a, log2_from);
    if (exponent < F.emin) exponent = F.emin;
    int32_t q = (int32_t)min_number(mul_rn((double)from_bits<float>(a), power<double>(F.trailing - exponent)), 1048576.0);
    while (q && q < 1 << F.trailing && exponent > F.emin) {
        q *= 2;
        --exponent;
    }
    const int32_t code = q ? ((exponent - F.emin) << F.trailing) + q : 0;
    return code < F.top ? code : F.top;
}

// The code of x in a block of `facts`.
template <MxFormat F> GEMMSIM_HD uint32_t element_code(float x, const BlockFacts& facts, const int32_t* log2_from) {
    constexpr int32_t sign_bit = 1 << (F.bits - 1), mask = 2 * sign_bit - 1;
    const float v = mul_rn(x, facts.factor);
    const uint32_t u = to_bits(v);
    int32_t code;
    bool negative = (int32_t)u < 0;
    if constexpr (F.microxcaling && F.rounding == RTZ && !F.integer) {
        code = truncated_magnitude<F>(u & 0x7FFFFFFFu, log2_from);
        negative = v < 0;
    } else {
        float b = from_bits<float>(u & 0x7FFFFFFFu);
        b = min_number(b, F.max);
        uint32_t a = to_bits(b);
        if constexpr (F.microxcaling) {
            // For the number just below half a quantum, microxcaling's binary32 sum |t| + 0.5 rounds up to one.
            constexpr uint32_t below_half = ((uint32_t)(F.emin - F.trailing - 1 + 127) << 23) - 1;
            if (F.rounding != RTZ && a == below_half) a += 2;
            negative = negative && a != 0;
        }
        code = code_magnitude<F>(a);
    }
    if constexpr (F.integer) code = (negative ? -code : code) & mask;
    else code |= negative ? sign_bit : 0;
    if constexpr (meets_specials<F>()) code = v != v ? F.nan_code : code;
    return (uint32_t)code;
}

// Whether blocks of numbers take the kernels' short path. They round to nearest even, have nothing specific to microxcaling, and
// contain no elements that are not numbers.
template <MxFormat F> GEMMSIM_HD constexpr bool is_plain() { return F.rounding == RNE && !F.microxcaling && !meets_specials<F>(); }

GEMMSIM_HD float magnitude(float x) {
#if defined(__CUDA_ARCH__)
    return fabsf(x);
#else
    return __builtin_fabsf(x);
#endif
}

// The code of `v` without its sign, in a plain block.
template <MxFormat F> GEMMSIM_HD uint32_t plain_magnitude(float v) {
    return (uint32_t)code_magnitude<F>(to_bits(min_number(magnitude(v), F.max)));
}

template <MxFormat F> GEMMSIM_HD uint32_t plain_code(float v) {
    constexpr uint32_t sign_bit = 1u << (F.bits - 1);
    const uint32_t code = plain_magnitude<F>(v);
    if constexpr (F.integer) return ((int32_t)to_bits(v) < 0 ? 0u - code : code) & (2 * sign_bit - 1);
    else return code | (to_bits(v) >> (32 - F.bits) & sign_bit);
}

// The value of `v`'s code without a scale.
template <MxFormat F> GEMMSIM_HD float plain_value(float v) {
    constexpr float quanta = power<float>(23 - F.trailing);
    const float a = min_number(magnitude(v), F.max);
    const uint32_t field = quantum_field<F>(to_bits(a));
    const float r = fma_rn(from_bits<float>(field), -quanta, plus_quanta<F>(a, field));
    const float y = from_bits<float>(to_bits(r) | (to_bits(v) & 0x80000000u));
    return F.integer ? add_rn(y, 0.0f) : y;  // integers have no -0
}

// The code of x in blocks of every kind: F.nan_code in NaN blocks, 0 in flushed ones.
template <MxFormat F> GEMMSIM_HD uint32_t block_element(float x, const BlockFacts& facts, const int32_t* log2_from) {
    uint32_t code = element_code<F>(x, facts, log2_from);
    if constexpr (F.flush) code = facts.zeros ? 0u : code;
    return facts.factor != facts.factor ? (uint32_t)F.nan_code : code;
}

// What decoding x's code gives. microxcaling's integers have a -0 that their codes lack: it results from negative numbers that
// underflow.
template <MxFormat F> GEMMSIM_HD float quantized(float x, const BlockFacts& facts, float back, const int32_t* log2_from) {
    float y = scaled_value<F>(block_element<F>(x, facts, log2_from), back);
    if constexpr (F.microxcaling && F.integer)
        if (y == 0 && !facts.zeros && mul_rn(x, facts.factor) < 0) y = -0.0f;
    return y;
}

// The facts of the block whose largest magnitude is `amax`, and its scale's code.
template <MxFormat F> GEMMSIM_HD BlockFacts block_facts(uint32_t amax, float second, const int32_t* log2_from, uint32_t* scale) {
    BlockFacts facts;
    facts.amax = amax;
    *scale = (uint32_t)scale_code<F>(amax, second, log2_from, &facts.factor);
    facts.zeros = facts.factor == facts.factor && is_flushed<F>(amax, log2_from);
    return facts;
}

}  // namespace gemmsim
