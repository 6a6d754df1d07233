// This file converts the elements of one block to codes and back, and packs codes.
#pragma once
#include "casts/block_scale.h"

namespace gemmsim::NS {

// Bits of the largest magnitude. In these bits NaN is larger than infinity.
template <int N> INL uint32_t largest(const float* x, int64_t n) {
    const int64_t count = N ? N : n;
    int32_t top = 0;
    for (int64_t i = 0; i < count; ++i) {
        int32_t u;
        memcpy(&u, x + i, 4);
        u &= 0x7FFFFFFF;
        top = u > top ? u : top;
    }
    return (uint32_t)top;
}

// The magnitude of a code: the number of quanta, plus the exponent field in whose quanta it is counted.
template <int ROUNDING> INL int32_t magnitude(int32_t a, int32_t low, int trailing) {
    int32_t field = a & 0x7F800000;
    field = field > low ? field : low;
    int32_t q;
    if constexpr (ROUNDING == RNE) {
        // Adding 2^23 quanta rounds to quanta, ties to even.
        const int32_t magic = field + ((23 - trailing) << 23);
        float t;
        memcpy(&t, &a, 4);
        t += float_from((uint32_t)magic);
        memcpy(&q, &t, 4);
        q -= magic;
    } else {
        const int32_t own = a & 0x7F800000;
        int32_t shift = ((field - own) >> 23) + 23 - trailing;
        shift = shift < 31 ? shift : 31;
        const int32_t significand = (a & 0x7FFFFF) | (own ? 0x800000 : 0);
        q = (significand + (ROUNDING == RNA ? 1 << (shift - 1) : 0)) >> shift;
    }
    return ((field - low) >> (23 - trailing)) + q;
}

INL uint8_t signed_code(int32_t code, int32_t sign, const BlockFormat& f, bool integer) {
    if (integer) return (uint8_t)((sign ? -code : code) & ((1 << f.bits) - 1));
    return (uint8_t)(code | (sign ? 1 << (f.bits - 1) : 0));
}

template <int N, int ROUNDING, bool INT, bool EDGES> static void encode_loop(const float* x, int64_t n, const BlockFormat& f, float factor,
                                                                             uint8_t* codes) {
    const int64_t count = N ? N : n;
    const int32_t low = (f.emin + 127) << 23, trailing = f.trailing, top = (int32_t)bits_of(f.max), nan_code = f.nan_code;
    const int32_t sign_shift = 32 - f.bits, mask = (1 << f.bits) - 1;
    const bool mxc = f.flags & MXC;
    // The number just below half a quantum. microxcaling's binary32 sum |t| + 0.5 rounds it up to one.
    const int32_t below_half = ((f.emin - trailing - 1 + 127) << 23) - 1;
    for (int64_t i = 0; i < count; ++i) {
        const float v = x[i] * factor;
        int32_t u;
        memcpy(&u, &v, 4);
        int32_t a = u & 0x7FFFFFFF;
        const bool is_nan = a > (int32_t)INF_BITS;
        a = a < top ? a : top;
        uint32_t sign = (uint32_t)u & 0x80000000u;
        if (EDGES && mxc) {
            if (ROUNDING != RTZ) a += a == below_half ? 2 : 0;
            sign = a ? sign : 0;
        }
        int32_t code = magnitude<ROUNDING>(a, low, trailing);
        if (INT) code = (sign ? -code : code) & mask;
        else code |= (int32_t)(sign >> sign_shift);
        if (EDGES) code = is_nan ? nan_code : code;
        codes[i] = (uint8_t)code;
    }
}

// microxcaling's truncation. Its exponent comes from a rounded logarithm, so that numbers just below a power of two are
// counted in the quanta above it.
static void encode_truncated(const float* x, int64_t n, const BlockFormat& f, float factor, uint8_t* codes) {
    for (int64_t i = 0; i < n; ++i) {
        const float v = x[i] * factor;
        const uint32_t a = bits_of(v) & 0x7FFFFFFFu;
        int32_t code = 0;
        if (a) {
            int32_t exponent = log2_step(a, f.log2_from);
            if (exponent < f.emin) exponent = f.emin;
            int32_t q = (int32_t)__builtin_fmin(__builtin_ldexp((double)float_from(a), f.trailing - exponent), 1 << 20);
            while (q && q < 1 << f.trailing && exponent > f.emin) {
                q *= 2;
                --exponent;
            }
            code = q ? ((exponent - f.emin) << f.trailing) + q : 0;
            if (code > f.top) code = f.top;
        }
        codes[i] = signed_code(code, v < 0, f, false);
    }
}

template <int N, bool INT, bool EDGES> static void encode_rounded(const float* x, int64_t n, const BlockFormat& f, float factor,
                                                                  uint8_t* codes) {
    if (f.rounding == RNE) encode_loop<N, RNE, INT, EDGES>(x, n, f, factor, codes);
    else if (f.rounding == RNA) encode_loop<N, RNA, INT, EDGES>(x, n, f, factor, codes);
    else encode_loop<N, RTZ, INT, EDGES>(x, n, f, factor, codes);
}

template <int N> INL void encode_elements(const float* x, int64_t n, const BlockFormat& f, float factor, uint32_t amax, uint8_t* codes) {
    const bool integer = f.flags & TWOS_COMPLEMENT;
    if ((f.flags & MXC) && f.rounding == RTZ && !integer) return encode_truncated(x, n, f, factor, codes);
    if (amax >= INF_BITS || (f.flags & MXC)) {
        if (integer) encode_rounded<0, true, true>(x, n, f, factor, codes);
        else encode_rounded<0, false, true>(x, n, f, factor, codes);
    } else if (integer) {
        encode_rounded<N, true, false>(x, n, f, factor, codes);
    } else {
        encode_rounded<N, false, false>(x, n, f, factor, codes);
    }
}

template <int N, bool SPECIAL> static void decode_floats(const uint8_t* codes, int64_t n, const BlockFormat& f, float factor, float* out) {
    const int64_t count = N ? N : n;
    const int32_t sign_shift = 32 - f.bits, mask = (1 << (f.bits - 1)) - 1, trailing = f.trailing, normal = 1 << trailing;
    const int32_t base = (f.emin - 1 + 127) << 23, shift = 23 - trailing, inf_code = f.inf_code, nan_from = f.nan_from;
    const float quantum = float_from((uint32_t)(f.emin - trailing + 127) << 23);
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t c = codes[i];
        const int32_t magnitude = (int32_t)c & mask;
        const float small = (float)magnitude * quantum;
        int32_t bits, low;
        memcpy(&low, &small, 4);
        bits = magnitude < normal ? low : (magnitude << shift) + base;
        if (SPECIAL) { bits = magnitude == inf_code ? (int32_t)INF_BITS : bits; }
        const float v = float_from((uint32_t)bits | (c << sign_shift & 0x80000000u)) * factor;
        if (SPECIAL) out[i] = magnitude >= nan_from || v != v ? float_from(C32::NAN_BITS) : v;
        else out[i] = v;
    }
}

template <int N> INL void decode_elements(const uint8_t* codes, int64_t n, const BlockFormat& f, float factor, float* out) {
    if (!(f.flags & TWOS_COMPLEMENT)) {
        if (f.flags & SPECIALS) decode_floats<N, true>(codes, n, f, factor, out);
        else decode_floats<N, false>(codes, n, f, factor, out);
        return;
    }
    const int up = 32 - f.bits;
    const float quantum = float_from((uint32_t)(127 + f.emin - f.trailing) << 23);
    for (int64_t i = 0; i < n; ++i) out[i] = (float)((int32_t)((uint32_t)codes[i] << up) >> up) * quantum * factor;
}

// Packs codes of one byte each into memory.
INL void pack(int packing, const uint8_t* codes, int64_t n, uint8_t* out, int64_t step) {
    if (packing == BYTES) {
        for (int64_t i = 0; i < n; ++i) out[i * step] = codes[i];
    } else if (packing == DENSE6) {
        for (int64_t i = 0; i < n; i += 4, out += 3 * step) {
            uint32_t four = 0;
            for (int64_t j = 0; j < 4 && i + j < n; ++j) four |= (uint32_t)(codes[i + j] & 63) << (6 * j);
            for (int j = 0; j < 3; ++j) out[j * step] = (uint8_t)(four >> (8 * j));
        }
    } else {
        const int first = packing == LOW_FIRST ? 0 : 4, second = 4 - first;
        const int64_t pairs = n / 2;
        if (step == 1) {
            for (int64_t i = 0; i < pairs; ++i) {
                uint16_t two;  // little-endian: the first code is the low byte
                memcpy(&two, codes + 2 * i, 2);
                out[i] = first ? (uint8_t)(two << 4 | two >> 8) : (uint8_t)(two | two >> 4);
            }
        } else
            for (int64_t i = 0; i < pairs; ++i) out[i * step] = (uint8_t)(codes[2 * i] << first | codes[2 * i + 1] << second);
        if (n & 1) out[pairs * step] = (uint8_t)(codes[n - 1] << first);
    }
}

// Unpacks codes to one byte each.
INL void unpack(int packing, const uint8_t* in, int64_t step, int64_t n, uint8_t* codes) {
    if (packing == BYTES) {
        for (int64_t i = 0; i < n; ++i) codes[i] = in[i * step];
    } else if (packing == DENSE6) {
        for (int64_t i = 0; i < n; i += 4, in += 3 * step) {
            uint32_t four = 0;
            for (int j = 0; j < 3; ++j) four |= (uint32_t)in[j * step] << (8 * j);
            for (int64_t j = 0; j < 4 && i + j < n; ++j) codes[i + j] = four >> (6 * j) & 63;
        }
    } else {
        const int first = packing == LOW_FIRST ? 0 : 4, second = 4 - first;
        const int64_t pairs = n / 2;
        for (int64_t i = 0; i < pairs && step == 1; ++i) {
            const uint32_t both = in[i];
            const uint16_t two = (uint16_t)((first ? both >> 4 | both << 8 : both | both << 4) & 0x0F0Fu);
            memcpy(codes + 2 * i, &two, 2);
        }
        for (int64_t i = step == 1 ? pairs : 0; i < pairs; ++i) {
            const uint8_t both = in[i * step];
            codes[2 * i] = both >> first & 15;
            codes[2 * i + 1] = both >> second & 15;
        }
        if (n & 1) codes[n - 1] = in[pairs * step] >> first & 15;
    }
}

}  // namespace gemmsim::NS
