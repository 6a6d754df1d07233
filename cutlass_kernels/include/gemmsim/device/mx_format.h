// Block formats as the compiler sees them: elements that share a scale (docs/reference/mx.md). Everything is a constant.
#pragma once
#include "gemmsim/device/codes.h"

namespace gemmsim {

// How the largest magnitude becomes the scale's code (gemmsim/formats/block.py). LOG2_* are rules of older systems, which take a
// rounded logarithm. NEAREST is for scales with significand bits.
enum class ScaleRule : int32_t { FLOOR, CEIL, EVEN, RCEIL, LOG2_FLOOR, LOG2_CEIL, NEAREST };

// gemmsim/backends/cuda/casts/mx_format.py writes these records.
struct MxFormat {
    int32_t block;                          // elements that share a scale
    ScaleRule rule;
    int32_t rounding;                       // of elements: RNE, RNA or RTZ
    int32_t integer;                        // elements are two's complement, not sign and magnitude
    int32_t keeps_infinity;                 // an infinite amax has exponent 128 and is not NaN
    int32_t microxcaling, flush;            // its rounding, and zeros without sign; its blocks below 2^-126 as zeros
    int32_t tensor_scale;                   // a second scale for the tensor
    int32_t bits, trailing, emin, top;      // of elements; integers are quanta of 2^(emin - trailing)
    int32_t nan_code, infinity, nan_from;   // magnitudes that are infinite, or NaN from there on; 256: none
    int32_t emax, even_trailing;            // what the rule subtracts from the exponent; trailing bits that EVEN rounds to
    float max, rule_arg;                    // largest element; what RCEIL multiplies and LOG2_CEIL and NEAREST divide by
    uint32_t first_factor, last_factor;     // what elements are multiplied by under e8m0's codes 0 and 255, as bits
    int32_t powers;                         // scales are e8m0
    CodeFormat scale;                       // otherwise: their codes
    int32_t scale_emin, scale_nan;
    float scale_low, scale_high;            // the range to which NEAREST clamps scales
};

constexpr uint32_t INFINITY_BITS = 0x7F800000u;

// The value of a scale's code. Codes that are not in use give NaN.
template <MxFormat F> GEMMSIM_HD float scale_value(uint32_t code) {
    if constexpr (F.powers) return from_bits<float>(code == 255 ? Carrier<float>::NAN_BITS : code ? code << 23 : 1u << 22);
    else return code >> F.scale.bits ? quiet_nan<float>() : decode<F.scale, float>(code);
}

// The number by which the elements of a block are multiplied to decode them. `second` is the tensor's scale.
template <MxFormat F> GEMMSIM_HD float decode_factor(uint32_t code, float second) {
    const float value = scale_value<F>(code);
    return F.tensor_scale ? mul_rn(second, value) : value;
}

// The value of an element without its scale, exact in binary32. The bits of `code` above the element's are ignored.
template <MxFormat F> GEMMSIM_HD float element_value(uint32_t code) {
    constexpr uint32_t sign_bit = 1u << (F.bits - 1);
    if constexpr (F.integer) {
        const int32_t x = (int32_t)(code << (32 - F.bits)) >> (32 - F.bits);
        return mul_rn((float)x, power<float>(F.emin - F.trailing));
    } else {
        const uint32_t magnitude = code & (sign_bit - 1);
        // Read as binary32's fields the code is 2^(-126 - emin) times its value, subnormals included.
        float x = mul_rn(from_bits<float>(magnitude << (23 - F.trailing)), power<float>(F.emin + 126));
        if constexpr (F.infinity < 256) x = (int32_t)magnitude == F.infinity ? from_bits<float>(INFINITY_BITS) : x;
        if constexpr (F.nan_from < 256) x = (int32_t)magnitude >= F.nan_from ? quiet_nan<float>() : x;
        return from_bits<float>(to_bits(x) | (code << (32 - F.bits) & 0x80000000u));
    }
}

// Whether elements have infinity or NaN.
template <MxFormat F> GEMMSIM_HD constexpr bool has_specials() { return F.infinity < 256 || F.nan_from < 256; }

// The same for a code in the highest bits of `top` that is a number, neither infinity nor NaN.
template <MxFormat F> GEMMSIM_HD float top_element_value(uint32_t top) {
    if constexpr (F.integer) {
        constexpr uint32_t sign_bit = 1u << (F.bits - 1), offset = 0x4B000000u;  // 2^23: its last place is 1
        const uint32_t x = (top >> (32 - F.bits) ^ sign_bit) | offset;
        return mul_rn(add_rn(from_bits<float>(x), -(8388608.0f + (float)sign_bit)), power<float>(F.emin - F.trailing));
    } else {
        constexpr int down = 9 - (F.bits - F.trailing);  // from behind the sign to binary32's fields
        constexpr uint32_t mask = 0x80000000u | ((1u << (F.bits - 1)) - 1) << (23 - F.trailing);
        return mul_rn(from_bits<float>((uint32_t)((int32_t)top >> down) & mask), power<float>(F.emin + 126));
    }
}

// The element times the factor, rounded once to binary32. A NaN is the canonical one.
template <MxFormat F> GEMMSIM_HD float scaled_value(uint32_t code, float factor) {
    const float x = mul_rn(element_value<F>(code), factor);
    return x != x ? quiet_nan<float>() : x;
}

}  // namespace gemmsim
