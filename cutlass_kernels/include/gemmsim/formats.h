// Casts by a format's name, for users of C++. They are the numbers that Python's parser makes of the same format
// (docs/reference/formats.md).
#pragma once
#include "gemmsim/device/carrier.h"

namespace gemmsim {

// The meaning of the largest codes: infinities and NaN; NaN alone; numbers.
enum class Specials { IEEE, NAN_ONLY, NONE };

// A sign bit, `exponent` bits with bias 2^(exponent - 1) - 1, and `mantissa` bits. Without subnormals, zero and 2^emin are
// neighbours.
struct FloatFormat {
    int exponent, mantissa;
    Specials specials = Specials::IEEE;
    bool subnormals = true;
};

constexpr FloatFormat FP32 = {8, 23}, FP64 = {11, 52}, E5M10 = {5, 10}, E8M7 = {8, 7}, E8M13 = {8, 13}, E5M2 = {5, 2},
                      E4M3 = {4, 3, Specials::NAN_ONLY}, E3M2 = {3, 2, Specials::NONE}, E2M3 = {2, 3, Specials::NONE},
                      E2M1 = {2, 1, Specials::NONE};

// What a finite number past the largest one becomes. INFINITE: an infinity, or NaN or the largest number where the format has no
// infinity. SATURATE and CLAMP: the largest number. SATURATE leaves infinities unchanged where the format has them; CLAMP makes
// them the largest number, too.
enum class Overflow { INFINITE, SATURATE, CLAMP };

// Rounds to `f`. Numbers overflow only where `mode` leads past the end, and NaN stays NaN. `bits`: random bits of SR, SRB and SRC.
GEMMSIM_HD constexpr Cast cast_to(const FloatFormat& f, Mode mode = RNE, int bits = 0, Overflow overflow = Overflow::INFINITE) {
    const int bias = (1 << (f.exponent - 1)) - 1, emax = bias + (f.specials == Specials::IEEE ? 0 : 1);
    const int missing = f.specials == Specials::NAN_ONLY ? 2 : 1;  // the largest code of all is NaN
    const double hi = power<double>(emax) * (2 - missing * power<double>(-f.mantissa)), inf = number(0x7FFull << 52);
    const double special = f.specials == Specials::IEEE ? inf : f.specials == Specials::NAN_ONLY ? number(0x7FF8ull << 48) : hi;
    const double below = f.specials == Specials::NAN_ONLY ? special : -special;
    const bool saturates = overflow != Overflow::INFINITE, odd = mode == RO && missing == 1;
    const bool keeps = !saturates || (overflow == Overflow::SATURATE && f.specials == Specials::IEEE);
    return Cast{.p = f.mantissa + 1,
                .emin = 1 - bias,
                .mode = mode,
                .rbits = bits,
                .flags = PRESENT | NEG_ZERO | (f.subnormals ? 0 : NO_SUBNORMALS) | (mode < RNE ? CODE_PARITY : 0),
                .emax = emax,
                .lo = -hi,
                .hi = hi,
                .over_neg = saturates || mode == RTZ || mode == RU || odd ? -hi : below,
                .over_pos = saturates || mode == RTZ || mode == RD || odd ? hi : special,
                .inf_neg = keeps ? below : -hi,
                .inf_pos = keeps ? special : hi};
}

// Multiples of 2^-frac that integers of `bits` bits count, saturated at both ends. There is no -0.
GEMMSIM_HD constexpr Cast fixed_point(int bits, int frac, Mode mode = RNE, int random_bits = 0) {
    const double unit = power<double>(-frac), hi = (power<double>(bits - 1) - 1) * unit, lo = -power<double>(bits - 1) * unit;
    const int emin = bits - 1 - frac;
    return Cast{.p = bits,
                .emin = emin,
                .mode = mode,
                .rbits = random_bits,
                .flags = PRESENT | (mode < RNE ? CODE_PARITY : 0),
                .emax = emin,
                .lo = lo,
                .hi = hi,
                .over_neg = lo,
                .over_pos = hi,
                .inf_neg = lo,
                .inf_pos = hi};
}

}  // namespace gemmsim
