// This file processes many whole blocks of a known length at once. Constants stay in CPU registers from block to block,
// and the scales of a group of blocks are computed before its elements. It applies to nearest even without
// microxcaling's rounding. Blocks with NaN or infinity are processed one by one.
#pragma once
#include "casts/block_elements.h"

namespace gemmsim::NS {

constexpr int64_t GROUP = 64;  // blocks; their floats fit the first-level cache

// How the codes of a group are stored: one byte each, or two in a byte with the first in the low or the high half.
enum Store { STORE_BYTES, STORE_LOW_FIRST, STORE_HIGH_FIRST };

INL bool has_fast_way(const BlockFormat& f) { return f.rounding == RNE && !(f.flags & MXC); }

#if ISA_AVX512
constexpr bool PACKS = true;  // encode_group and decode_group support two codes per byte

// Stores sixteen codes from 32-bit lanes.
template <Store STORE> INL void store_codes(uint8_t* to, __m512i code) {
    if constexpr (STORE == STORE_BYTES) {
        _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(code));
    } else {
        const __m512i first = STORE == STORE_LOW_FIRST ? code : _mm512_slli_epi64(code, 4);
        const __m512i second = _mm512_srli_epi64(code, STORE == STORE_LOW_FIRST ? 28 : 32);
        _mm_storel_epi64((__m128i*)to, _mm512_cvtepi64_epi8(_mm512_or_si512(first, second)));
    }
}

template <Store STORE> INL __m512i load_codes(const uint8_t* from) {
    if constexpr (STORE == STORE_BYTES) return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)from));
    const __m512i both = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i*)from));
    const __m512i low = _mm512_slli_epi64(both, STORE == STORE_LOW_FIRST ? 28 : 32),
                  high = _mm512_srli_epi64(both, STORE == STORE_LOW_FIRST ? 0 : 4);
    return _mm512_and_si512(_mm512_or_si512(low, high), _mm512_set1_epi32(15));
}

// Prefetches the floats of the next group while this one is computed. Hardware prefetchers lose track at every group,
// because its floats are read twice.
INL void prefetch_group(const float* x, int64_t distance) { _mm_prefetch((const char*)(x + distance), _MM_HINT_T0); }

// This is the loop below (the version without AVX-512), sixteen elements at a time.
template <int N, bool INT, Store STORE> static void encode_group(const float* __restrict x, int64_t blocks, const BlockFormat& f,
                                                                 const float* __restrict factors, uint8_t* __restrict codes) {
    constexpr int PER_BYTE = STORE == STORE_BYTES ? 1 : 2;
    typedef __m512i I;
    const I low = _mm512_set1_epi32((f.emin + 127) << 23), top = _mm512_set1_epi32((int32_t)bits_of(f.max)),
            up = _mm512_set1_epi32((23 - f.trailing) << 23);
    const I positive = _mm512_set1_epi32(0x7FFFFFFF), exponent = _mm512_set1_epi32(0x7F800000), sign = _mm512_set1_epi32(1 << (f.bits - 1)),
            mask = _mm512_set1_epi32((1 << f.bits) - 1);
    const __m128i shift = _mm_cvtsi32_si128(23 - f.trailing), sign_shift = _mm_cvtsi32_si128(32 - f.bits);
    for (int64_t b = 0; b < blocks; ++b) {
        const __m512 factor = _mm512_set1_ps(factors[b]);
#pragma GCC unroll 2
        for (int i = 0; i < N; i += 16) {
            prefetch_group(x + b * N + i, GROUP * N);
            const I u = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(x + b * N + i), factor));
            const I a = _mm512_min_epi32(_mm512_and_si512(u, positive), top);
            const I field = _mm512_max_epi32(_mm512_and_si512(a, exponent), low), magic = _mm512_add_epi32(field, up);
            const I t = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(magic)));
            I code = _mm512_add_epi32(_mm512_srl_epi32(_mm512_sub_epi32(field, low), shift), _mm512_sub_epi32(t, magic));
            if (INT) {
                const I negative = _mm512_srai_epi32(u, 31);
                code = _mm512_and_si512(_mm512_sub_epi32(_mm512_xor_si512(code, negative), negative), mask);
            } else {
                code = _mm512_ternarylogic_epi32(code, _mm512_srl_epi32(u, sign_shift), sign, 0xF8);  // code | (u >> . & sign)
            }
            store_codes<STORE>(codes + (b * N + i) / PER_BYTE, code);
        }
    }
}
#else
constexpr bool PACKS = false;

template <int N, bool INT, Store> static void encode_group(const float* __restrict x, int64_t blocks, const BlockFormat& f,
                                                           const float* __restrict factors, uint8_t* __restrict codes) {
    const int32_t low = (f.emin + 127) << 23, top = (int32_t)bits_of(f.max), shift = 23 - f.trailing, up = shift << 23;
    const int32_t sign_shift = 32 - f.bits, mask = (1 << f.bits) - 1, sign_mask = 1 << (f.bits - 1);
    for (int64_t b = 0; b < blocks; ++b) {
        const float factor = factors[b];
        for (int i = 0; i < N; ++i) {
            const float v = x[b * N + i] * factor;
            int32_t u;
            memcpy(&u, &v, 4);
            int32_t a = u & 0x7FFFFFFF;
            a = a < top ? a : top;
            int32_t field = a & 0x7F800000;
            field = field > low ? field : low;
            const int32_t magic = field + up;
            float t;
            memcpy(&t, &a, 4);
            t += float_from((uint32_t)magic);
            int32_t q;
            memcpy(&q, &t, 4);
            int32_t code = ((field - low) >> shift) + (q - magic);
            if (INT) code = (((u >> 31) ^ code) - (u >> 31)) & mask;
            else code |= (int32_t)((uint32_t)u >> sign_shift) & sign_mask;
            codes[b * N + i] = (uint8_t)code;
        }
    }
}

#endif

#if ISA_AVX512
// The largest lane of each of sixteen vectors. Every level halves the number of lanes, and the position of a lane says
// which vector it belongs to.
INL __m512i largest_of_sixteen(__m512i* v) {
    for (int i = 0; i < 8; ++i)
        v[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 4; ++i)
        v[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; ++i)
        v[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x88), _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0xDD));
    return _mm512_max_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xDD));
}
#endif

// Bits of the largest magnitude of each block.
template <int N> static void largest_of_each(const float* x, int64_t blocks, uint32_t* amax) {
    int64_t b = 0;
#if ISA_AVX512
    const __m512i positive = _mm512_set1_epi32(0x7FFFFFFF);
    for (; b + 16 <= blocks; b += 16) {
        __m512i v[16];
        for (int j = 0; j < 16; ++j) {
            const float* from = x + (b + j) * N;
            v[j] = _mm512_and_si512(_mm512_loadu_si512(from), positive);
            if (N == 32) v[j] = _mm512_max_epi32(v[j], _mm512_and_si512(_mm512_loadu_si512(from + 16), positive));
        }
        _mm512_storeu_si512(amax + b, largest_of_sixteen(v));
    }
#endif
    for (; b < blocks; ++b) amax[b] = largest<N>(x + b * N, N);
}

// Computes real_scale of every block, without branches in the loops. Returns whether all are numbers.
static bool real_scales(const uint32_t* __restrict amax, int64_t count, const BlockFormat& f, int32_t* __restrict scales,
                        float* __restrict factors) {
    const bool second = f.flags & TENSOR_SCALE;
    const float t = second ? f.tensor_scale : 1.0f, inverse = 1.0f / t, arg = f.rule_arg, least = f.scale_low, most = f.scale_high;
    const int32_t shift = 23 - f.scale_trailing, low = (f.scale_emin + 127) << 23;
    const float* decode = f.decode;
    bool plain = t >= 0x1p-96f && t < __builtin_inff();
    for (int64_t b = 0; b < count; ++b) plain &= amax[b] < INF_BITS;
    if (!plain) {
        for (int64_t b = 0; b < count; ++b) scales[b] = real_scale(amax[b], f, factors + b);
        return false;
    }
    for (int64_t b = 0; b < count; ++b) {
        float s = float_from(amax[b]) / arg / t;
        s = s > least ? s : least;
        s = s < most ? s : most;
        const int32_t exponent = (int32_t)(bits_of(s) & INF_BITS), magic = exponent + (shift << 23);
        scales[b] = ((exponent - low) >> shift) + (int32_t)bits_of(s + float_from((uint32_t)magic)) - magic;
    }
    for (int64_t b = 0; b < count; ++b) factors[b] = inverse / decode[scales[b]];
    return true;
}

// Computes the scales of up to GROUP blocks and the factors for their elements. Returns whether all numbers are finite.
template <int N> static bool group_scales(const float* from, int64_t count, const BlockFormat& f, int32_t* scales, float* factors,
                                          uint32_t* amax) {
    bool plain = true;
    largest_of_each<N>(from, count, amax);
    if (f.rule == FLOOR && !(f.flags & KEEP_INF)) {
        for (int64_t b = 0; b < count; ++b) {
            const int32_t field = (int32_t)(amax[b] >> 23), code = field - f.scale_emax;
            scales[b] = field == 255 ? 255 : code < 0 ? 0 : code;
        }
        for (int64_t b = 0; b < count; ++b) {
            factors[b] = f.encode[scales[b]];
            plain &= amax[b] < INF_BITS;
        }
        return plain;
    }
    if (f.rule == REAL) return real_scales(amax, count, f, scales, factors);
    for (int64_t b = 0; b < count; ++b) {
        scales[b] = power_scale(amax[b], f);
        factors[b] = f.encode[scales[b]];
        plain &= amax[b] < INF_BITS && factors[b] == factors[b];
    }
    return plain;
}

template <int N, Store STORE> static void encode_many(const float* x, int64_t blocks, const BlockFormat& f, uint8_t* codes,
                                                      int32_t* scales) {
    constexpr int PER_BYTE = STORE == STORE_BYTES ? 1 : 2;
    for (int64_t first = 0; first < blocks; first += GROUP) {
        const int64_t count = blocks - first < GROUP ? blocks - first : GROUP;
        const float* from = x + first * N;
        uint8_t* to = codes + first * N / PER_BYTE;
        uint32_t amax[GROUP];
        float factors[GROUP];
        const bool plain = group_scales<N>(from, count, f, scales + first, factors, amax);
        if (f.flags & TWOS_COMPLEMENT) encode_group<N, true, STORE>(from, count, f, factors, to);
        else encode_group<N, false, STORE>(from, count, f, factors, to);
        if (plain) continue;
        for (int64_t b = 0; b < count; ++b) {
            uint8_t own[N];
            if (factors[b] != factors[b]) memset(own, f.nan_code, N);
            else if (amax[b] >= INF_BITS) encode_elements<N>(from + b * N, N, f, factors[b], amax[b], own);
            else continue;
            pack(STORE == STORE_BYTES ? BYTES : STORE == STORE_LOW_FIRST ? LOW_FIRST : HIGH_FIRST, own, N, to + b * N / PER_BYTE, 1);
        }
    }
}

#if ISA_AVX512
// Values of the sixteen codes of a format of at most four bits.
INL __m512 small_values(const BlockFormat& f) {
    uint8_t codes[16];
    float values[16];
    for (int i = 0; i < 16; ++i) codes[i] = (uint8_t)(i & ((1 << f.bits) - 1));
    decode_elements<16>(codes, 16, f, 1.0f, values);
    return _mm512_loadu_ps(values);
}

// Decodes formats of at most four bits, by a table in a CPU register.
template <int N, Store STORE> static void decode_small(const uint8_t* __restrict codes, int64_t blocks, const BlockFormat& f,
                                                       const float* __restrict factors, float* __restrict out, bool stream) {
    constexpr int PER_BYTE = STORE == STORE_BYTES ? 1 : 2;
    const __m512 values = small_values(f);
    const __m512i mask = _mm512_set1_epi32((1 << f.bits) - 1);
    for (int64_t b = 0; b < blocks; ++b) {
        const __m512 factor = _mm512_set1_ps(factors[b]);
        for (int i = 0; i < N; i += 16) {
            const __m512i c = _mm512_and_si512(load_codes<STORE>(codes + (b * N + i) / PER_BYTE), mask);
            const __m512 v = _mm512_mul_ps(_mm512_permutexvar_ps(c, values), factor);
            if (stream) _mm512_stream_ps(out + b * N + i, v);
            else _mm512_storeu_ps(out + b * N + i, v);
        }
    }
}

template <int N, bool INT, bool SPECIAL> static void decode_group(const uint8_t* __restrict codes, int64_t blocks, const BlockFormat& f,
                                                                  const float* __restrict factors, float* __restrict out, bool stream) {
    typedef __m512i I;
    const I mask = _mm512_set1_epi32((1 << (f.bits - 1)) - 1), normal = _mm512_set1_epi32(1 << f.trailing),
            base = _mm512_set1_epi32((f.emin - 1 + 127) << 23);
    const I inf_code = _mm512_set1_epi32(f.inf_code), nan_from = _mm512_set1_epi32(f.nan_from),
            sign = _mm512_set1_epi32((int32_t)0x80000000u);
    const I inf = _mm512_set1_epi32((int32_t)INF_BITS), nan = _mm512_set1_epi32((int32_t)C32::NAN_BITS);
    const __m128i shift = _mm_cvtsi32_si128(23 - f.trailing), sign_shift = _mm_cvtsi32_si128(32 - f.bits);
    const __m512 quantum = _mm512_set1_ps(float_from((uint32_t)(f.emin - f.trailing + 127) << 23));
    for (int64_t b = 0; b < blocks; ++b) {
        const __m512 factor = _mm512_set1_ps(factors[b]);
#pragma GCC unroll 2
        for (int i = 0; i < N; i += 16) {
            const I c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(codes + b * N + i))), high = _mm512_sll_epi32(c, sign_shift);
            __m512 v;
            if (INT) {
                v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sra_epi32(high, sign_shift)), quantum);
            } else {
                const I magnitude = _mm512_and_si512(c, mask),
                        small = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(magnitude), quantum));
                I bits = _mm512_add_epi32(_mm512_sll_epi32(magnitude, shift), base);
                bits = _mm512_mask_mov_epi32(bits, _mm512_cmplt_epi32_mask(magnitude, normal), small);
                if (SPECIAL) bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(magnitude, inf_code), inf);
                bits = _mm512_or_si512(bits, _mm512_and_si512(high, sign));
                if (SPECIAL) bits = _mm512_mask_mov_epi32(bits, _mm512_cmpge_epi32_mask(magnitude, nan_from), nan);
                v = _mm512_castsi512_ps(bits);
            }
            v = _mm512_mul_ps(v, factor);
            if (stream) _mm512_stream_ps(out + b * N + i, v);
            else _mm512_storeu_ps(out + b * N + i, v);
        }
    }
}
#else
template <int N, bool INT, bool SPECIAL> static void decode_group(const uint8_t* __restrict codes, int64_t blocks, const BlockFormat& f,
                                                                  const float* __restrict factors, float* __restrict out, bool) {
    const int32_t sign_shift = 32 - f.bits, mask = (1 << (f.bits - 1)) - 1, normal = 1 << f.trailing;
    const int32_t base = (f.emin - 1 + 127) << 23, shift = 23 - f.trailing, inf_code = f.inf_code, nan_from = f.nan_from;
    const float quantum = float_from((uint32_t)(f.emin - f.trailing + 127) << 23);
    for (int64_t b = 0; b < blocks; ++b) {
        const float factor = factors[b];
        for (int i = 0; i < N; ++i) {
            const uint32_t c = codes[b * N + i];
            if (INT) {
                out[b * N + i] = (float)((int32_t)(c << sign_shift) >> sign_shift) * quantum * factor;
                continue;
            }
            const int32_t magnitude = (int32_t)c & mask;
            const float small = (float)magnitude * quantum;
            int32_t low;
            memcpy(&low, &small, 4);
            int32_t bits = magnitude < normal ? low : (magnitude << shift) + base;
            bits |= (int32_t)(c << sign_shift & 0x80000000u);
            if (SPECIAL) {
                bits = magnitude == inf_code ? (int32_t)(INF_BITS | (c << sign_shift & 0x80000000u)) : bits;
                bits = magnitude >= nan_from ? (int32_t)C32::NAN_BITS : bits;
            }
            out[b * N + i] = float_from((uint32_t)bits) * factor;
        }
    }
}

#endif

// A NaN factor makes every product NaN, and every NaN here is the canonical one. Infinities times zero need the other
// way (see takes_whole in block.cpp).
template <int N, Store STORE> static void decode_many(const uint8_t* codes, int64_t blocks, const BlockFormat& f, const float* factors,
                                                      float* out, bool stream) {
#if ISA_AVX512
    if (f.bits <= 4 && !(f.flags & SPECIALS)) return decode_small<N, STORE>(codes, blocks, f, factors, out, stream);
#endif
    if (f.flags & TWOS_COMPLEMENT) decode_group<N, true, false>(codes, blocks, f, factors, out, stream);
    else if (f.flags & SPECIALS) decode_group<N, false, true>(codes, blocks, f, factors, out, stream);
    else decode_group<N, false, false>(codes, blocks, f, factors, out, stream);
}

}  // namespace gemmsim::NS
