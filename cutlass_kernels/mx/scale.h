// Computes the scale of a block from its largest magnitude by the rules of all modes, on bit patterns of binary32.
#pragma once
#include "gemmsim/device/mx_format.h"

namespace gemmsim {

GEMMSIM_HD int32_t clamped(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

// Correctly rounded division.
GEMMSIM_HD float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

GEMMSIM_HD float reciprocal_rn(float x) {
#if defined(__CUDA_ARCH__)
    return __frcp_rn(x);
#else
    return 1.0f / x;
#endif
}

GEMMSIM_HD int leading_zeros(uint32_t x) {
#if defined(__CUDA_ARCH__)
    return __clz((int)x);
#else
    return __builtin_clz(x);
#endif
}

// floor(log2) of a positive finite number. Where the logarithm rounds up to the next integer the result is one more: this holds
// from trailing field from[exponent + 160] on.
GEMMSIM_HD int32_t log2_step(uint32_t bits, const int32_t* from) {
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    uint32_t trailing = bits & 0x7FFFFFu;
    if (exponent == -127) {
        const int up = leading_zeros(trailing) - 8;
        exponent = -126 - up;
        trailing = trailing << up & 0x7FFFFFu;
    }
    return exponent + ((int32_t)trailing >= from[exponent + 160] ? 1 : 0);
}

// Whether microxcaling treats the block as zeros.
template <MxFormat F> GEMMSIM_HD bool is_flushed(uint32_t amax, const int32_t* log2_from) {
    if constexpr (F.flush) return log2_step(amax ? amax : 1u << 23, log2_from) <= -127;
    else return false;
}

// The factor of elements under a code of e8m0: 2^(127 - code), except where older systems differ at the ends.
template <MxFormat F> GEMMSIM_HD float power_factor(int32_t code) {
    uint32_t bits = (uint32_t)(254 - code) << 23;
    if (code == 254) bits = 1u << 22;  // 2^-127
    if constexpr (F.first_factor != 254u << 23) bits = code == 0 ? F.first_factor : bits;
    return from_bits<float>(code == 255 ? F.last_factor : bits);
}

template <MxFormat F> GEMMSIM_HD int32_t log2_floor_code(uint32_t amax, const int32_t* log2_from) {
    if (amax > INFINITY_BITS || (F.microxcaling && amax == INFINITY_BITS)) return 255;
    if (amax == INFINITY_BITS) return 254;
    const int32_t exponent = log2_step(amax ? amax : 1u << 23, log2_from) - F.emax;
    if (F.microxcaling && exponent > 127) return 255;
    return clamped(exponent, -127, 127) + 127;
}

template <MxFormat F> GEMMSIM_HD int32_t log2_ceil_code(uint32_t amax, const int32_t* log2_from) {
    if (amax > INFINITY_BITS) return 255;
    if (amax == INFINITY_BITS) return 254;
    const uint32_t d = to_bits(div_rn(from_bits<float>(amax), F.rule_arg));
    if (d >= INFINITY_BITS) return 254;
    return d ? clamped(log2_step(d, log2_from), -127, 127) + 127 : 0;
}

template <MxFormat F> GEMMSIM_HD int32_t power_code(uint32_t amax, const int32_t* log2_from) {
    if constexpr (F.rule == ScaleRule::LOG2_FLOOR) return log2_floor_code<F>(amax, log2_from);
    if constexpr (F.rule == ScaleRule::LOG2_CEIL) return log2_ceil_code<F>(amax, log2_from);
    if (amax > INFINITY_BITS || (amax == INFINITY_BITS && !F.keeps_infinity)) return 255;
    if constexpr (F.rule == ScaleRule::RCEIL) {
        const uint32_t d = to_bits(mul_rn(from_bits<float>(amax), F.rule_arg)), trailing = d & 0x7FFFFFu;
        if (d >= INFINITY_BITS) return 255;
        return (int32_t)(d >> 23) + ((d >> 23 ? trailing != 0 : trailing > 0x400000u) ? 1 : 0);
    }
    int32_t field = (int32_t)(amax >> 23);
    const uint32_t trailing = amax & 0x7FFFFFu;
    if constexpr (F.rule == ScaleRule::CEIL) field += trailing != 0 ? 1 : 0;
    if constexpr (F.rule == ScaleRule::EVEN) {
        field += (int32_t)((trailing + (1u << (22 - F.even_trailing))) >> 23);
        if (field >= 255 && !F.keeps_infinity) return 255;
    }
    return clamped(field - 127 - F.emax, -127, 128) + 127;
}

template <MxFormat F> GEMMSIM_HD int32_t nearest_code(uint32_t amax, float second, float* factor) {
    *factor = quiet_nan<float>();
    const bool bad_second = F.tensor_scale && !(second >= 0x1p-96f && second < from_bits<float>(INFINITY_BITS));
    if (amax >= INFINITY_BITS || bad_second) return F.scale_nan;
    float s = div_rn(from_bits<float>(amax), F.rule_arg);
    if constexpr (F.tensor_scale) s = div_rn(s, second);
    s = s > F.scale_low ? s : F.scale_low;
    s = s < F.scale_high ? s : F.scale_high;
    constexpr int drop = 23 - F.scale.trailing;
    const uint32_t exponent = to_bits(s) & INFINITY_BITS, quanta = exponent + (drop << 23);  // 2^23 quanta
    const float sum = add_rn(s, from_bits<float>(quanta)), value = add_rn(sum, -from_bits<float>(quanta));
    const int32_t code = (int32_t)(((exponent - ((uint32_t)(F.scale_emin + 127) << 23)) >> drop) + to_bits(sum) - quanta);
    *factor = F.tensor_scale ? div_rn(reciprocal_rn(second), value) : reciprocal_rn(value);
    return code;
}

// The code of the scale and the factor of the elements, which is NaN where the block is NaN.
template <MxFormat F> GEMMSIM_HD int32_t scale_code(uint32_t amax, float second, const int32_t* log2_from, float* factor) {
    if constexpr (!F.powers) return nearest_code<F>(amax, second, factor);
    const int32_t code = power_code<F>(amax, log2_from);
    *factor = power_factor<F>(code);
    return code;
}

}  // namespace gemmsim
