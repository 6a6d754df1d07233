// Decodes the codes of formats of at most 8 bits to carrier values, exactly. A byte has one code in its low bits, or two of 4 bits.
#pragma once
#include "gemmsim/device/storage.h"

namespace gemmsim {

constexpr DType CODES = (DType)4;  // of operands only
template <> struct Storage<CODES> {
    typedef uint8_t Word;
};

// A code is a sign bit, if any, above a magnitude E * 2^trailing + T. gemmsim/formats/float_codec.py defines its value. If `whole`,
// the code is an integer. gemmsim/backends/cuda/codes.py writes these records.
struct CodeFormat {
    int32_t bits, trailing, quantum;  // of a code; of its significand without the leading one; exponent of the smallest quantum
    int32_t finite, infinity;         // magnitudes below `finite` are numbers; the magnitude of infinity, or -1
    int32_t is_signed, whole;         // whole: two's complement, or binary
    int32_t subnormals;               // E = 0 is T quanta; without, only zero
    int32_t from_one;                 // E = 0 is a binade like others, and there is no zero
    int32_t nan_at_sign;              // the code of the sign bit alone is NaN
    int32_t wide;                     // values need double
    int32_t packed;                   // two codes a byte, the first in the low bits
};

// The value of a code. Codes that are not in use are NaN.
template <CodeFormat F, class T> GEMMSIM_HD T decode(uint32_t code) {
    constexpr uint32_t sign = 1u << (F.bits - 1), implicit = 1u << F.trailing,
                       magnitudes = F.is_signed && !F.whole ? sign - 1 : 2 * sign - 1;
    code &= 2 * sign - 1;
    if (F.nan_at_sign && code == sign) return quiet_nan<T>();
    if constexpr (F.whole) {
        const int32_t x = F.is_signed && code & sign ? (int32_t)code - (int32_t)(2 * sign) : (int32_t)code;
        return mul_rn((T)x, power<T>(F.quantum));
    } else {
        const bool neg = F.is_signed && code & sign;
        const uint32_t mag = code & magnitudes, field = mag >> F.trailing, low = mag & (implicit - 1);
        if (mag >= (uint32_t)F.finite) {
            if ((int32_t)mag != F.infinity) return quiet_nan<T>();
            const T inf = from_bits<T>(Carrier<T>::EXPONENT);
            return neg ? -inf : inf;
        }
        if (!F.subnormals && field == 0 && low != 0) return quiet_nan<T>();
        const bool normal = F.from_one || field != 0;
        const T x = mul_rn((T)(int32_t)(normal ? implicit | low : low), power<T>(F.quantum + (int)field - (normal && !F.from_one ? 1 : 0)));
        return neg ? -x : x;
    }
}

}  // namespace gemmsim
