// This file computes the scale of one block from the bits of its largest magnitude.
#pragma once
#include "casts/block.h"
#include "casts/elementwise.h"

namespace gemmsim::NS {

constexpr uint32_t INF_BITS = 0x7F800000u;

INL uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

INL int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

// floor(log2) of a positive finite number, plus one if its trailing field is at least the table's entry for its
// exponent.
INL int32_t log2_step(uint32_t bits, const int32_t* from) {
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    uint32_t trailing = bits & 0x7FFFFFu;
    if (exponent == -127) {
        const int up = __builtin_clz(trailing) - 8;
        exponent = -126 - up;
        trailing = trailing << up & 0x7FFFFFu;
    }
    return exponent + ((int32_t)trailing >= from[exponent + 160]);
}

INL int32_t log2_floor_code(uint32_t amax, const BlockFormat& f) {
    const bool mxc = f.flags & MXC;
    if (amax > INF_BITS || (mxc && amax == INF_BITS)) return 255;
    if (amax == INF_BITS) return 254;
    const int32_t exponent = log2_step(amax ? amax : 1u << 23, f.log2_from) - f.scale_emax;
    if (mxc && exponent > 127) return 255;
    return clamp(exponent, -127, 127) + 127;
}

INL int32_t log2_ceil_code(uint32_t amax, const BlockFormat& f) {
    if (amax > INF_BITS) return 255;
    if (amax == INF_BITS) return 254;
    const uint32_t d = bits_of(float_from(amax) / f.rule_arg);
    if (d >= INF_BITS) return 254;
    return d ? clamp(log2_step(d, f.log2_from), -127, 127) + 127 : 0;
}

// The code of a power-of-two scale.
INL int32_t power_scale(uint32_t amax, const BlockFormat& f) {
    if (f.rule == LOG2_FLOOR) return log2_floor_code(amax, f);
    if (f.rule == LOG2_CEIL) return log2_ceil_code(amax, f);
    const bool keep = f.flags & KEEP_INF;
    if (amax > INF_BITS || (amax == INF_BITS && !keep)) return 255;
    if (f.rule == RCEIL) {
        const uint32_t d = bits_of(float_from(amax) * f.rule_arg), trailing = d & 0x7FFFFFu;
        if (d >= INF_BITS) return 255;
        return (int32_t)(d >> 23) + (d >> 23 ? trailing != 0 : trailing > 0x400000u);
    }
    int32_t field = (int32_t)(amax >> 23);
    const uint32_t trailing = amax & 0x7FFFFFu;
    if (f.rule == CEIL) field += trailing != 0;
    if (f.rule == EVEN) {
        field += (int32_t)((trailing + (1u << (22 - f.even_trailing))) >> 23);
        if (field >= 255 && !keep) return 255;
    }
    return clamp(field - 127 - f.scale_emax, -127, 128) + 127;
}

// The code of a float scale, and the factor that elements are multiplied by.
INL int32_t real_scale(uint32_t amax, const BlockFormat& f, float* factor) {
    const float t = f.tensor_scale;
    const bool second = f.flags & TENSOR_SCALE;
    *factor = float_from(C32::NAN_BITS);
    if (amax >= INF_BITS || (second && !(t >= 0x1p-96f && t < __builtin_inff()))) return f.scale_nan;
    float s = float_from(amax) / f.rule_arg;
    if (second) s = s / t;
    s = s > f.scale_low ? s : f.scale_low;
    s = s < f.scale_high ? s : f.scale_high;
    const int32_t low = (f.scale_emin + 127) << 23, exponent = (int32_t)(bits_of(s) & INF_BITS);
    const int32_t magic = exponent + ((23 - f.scale_trailing) << 23);
    const int32_t q = (int32_t)bits_of(s + float_from((uint32_t)magic)) - magic;
    const int32_t code = ((exponent - low) >> (23 - f.scale_trailing)) + q;
    *factor = (second ? 1.0f / t : 1.0f) / f.decode[code];
    return code;
}

}  // namespace gemmsim::NS
