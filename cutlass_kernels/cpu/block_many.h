// Many whole blocks of a known length at once: constants stay in registers from block to block, and the scales of a group
// are found before its elements. Nearest even, without microxcaling's rounding; blocks with NaN or infinity go one by one.
#pragma once
#include "block_elements.h"

namespace gemmsim { namespace NS {

constexpr int64_t GROUP = 64;  // blocks; their floats fit the first-level cache

INL bool has_fast_way(const BlockFormat& f) { return f.rounding == RNE && !(f.flags & MXC); }

#if ISA_AVX512
// the same steps as below, sixteen elements at a time
template <int N, bool INT> static void encode_group(const float* __restrict x, int64_t blocks, const BlockFormat& f, const float* __restrict factors, uint8_t* __restrict codes) {
    typedef __m512i I;
    const I low = _mm512_set1_epi32((f.emin + 127) << 23), top = _mm512_set1_epi32((int32_t)bits_of(f.max)), up = _mm512_set1_epi32((23 - f.trailing) << 23);
    const I positive = _mm512_set1_epi32(0x7FFFFFFF), exponent = _mm512_set1_epi32(0x7F800000), sign = _mm512_set1_epi32(1 << (f.bits - 1)), mask = _mm512_set1_epi32((1 << f.bits) - 1);
    const __m128i shift = _mm_cvtsi32_si128(23 - f.trailing), sign_shift = _mm_cvtsi32_si128(32 - f.bits);
    for (int64_t b = 0; b < blocks; ++b) {
        const __m512 factor = _mm512_set1_ps(factors[b]);
#pragma GCC unroll 2
        for (int i = 0; i < N; i += 16) {
            const I u = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(x + b * N + i), factor));
            const I a = _mm512_min_epi32(_mm512_and_si512(u, positive), top);
            const I field = _mm512_max_epi32(_mm512_and_si512(a, exponent), low), magic = _mm512_add_epi32(field, up);
            const I t = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(magic)));
            I code = _mm512_add_epi32(_mm512_srl_epi32(_mm512_sub_epi32(field, low), shift), _mm512_sub_epi32(t, magic));
            if (INT) {
                const I negative = _mm512_srai_epi32(u, 31);
                code = _mm512_and_si512(_mm512_sub_epi32(_mm512_xor_si512(code, negative), negative), mask);
            } else {
                code = _mm512_or_si512(code, _mm512_and_si512(_mm512_srl_epi32(u, sign_shift), sign));
            }
            _mm_storeu_si128((__m128i*)(codes + b * N + i), _mm512_cvtepi32_epi8(code));
        }
    }
}
#else
template <int N, bool INT> static void encode_group(const float* __restrict x, int64_t blocks, const BlockFormat& f, const float* __restrict factors, uint8_t* __restrict codes) {
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

template <int N> INL uint32_t largest_of(const float* x) {
#if ISA_AVX512
    __m512i top = _mm512_setzero_si512();
    for (int i = 0; i < N; i += 16) top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi32(0x7FFFFFFF)));
    return (uint32_t)_mm512_reduce_max_epi32(top);
#else
    return largest<N>(x, N);
#endif
}

template <int N> static void encode_many(const float* x, int64_t blocks, const BlockFormat& f, uint8_t* codes, int32_t* scales) {
    for (int64_t first = 0; first < blocks; first += GROUP) {
        const int64_t count = blocks - first < GROUP ? blocks - first : GROUP;
        const float* from = x + first * N;
        uint32_t amax[GROUP];
        float factors[GROUP];
        bool plain = true;
        for (int64_t b = 0; b < count; ++b) amax[b] = largest_of<N>(from + b * N);
        const bool floors = f.rule == FLOOR && !(f.flags & KEEP_INF);
        if (floors) {
            for (int64_t b = 0; b < count; ++b) {
                const int32_t field = (int32_t)(amax[b] >> 23), code = field - f.scale_emax;
                scales[first + b] = field == 255 ? 255 : code < 0 ? 0 : code;
            }
            for (int64_t b = 0; b < count; ++b) {
                factors[b] = f.encode[scales[first + b]];
                plain &= amax[b] < INF_BITS;
            }
        }
        for (int64_t b = floors ? count : 0; b < count; ++b) {
            if (f.rule == REAL) {
                scales[first + b] = real_scale(amax[b], f, factors + b);
            } else {
                scales[first + b] = power_scale(amax[b], f);
                factors[b] = f.encode[scales[first + b]];
            }
            plain &= amax[b] < INF_BITS && factors[b] == factors[b];
        }
        if (f.flags & TWOS_COMPLEMENT) encode_group<N, true>(from, count, f, factors, codes + first * N);
        else encode_group<N, false>(from, count, f, factors, codes + first * N);
        if (plain) continue;
        for (int64_t b = 0; b < count; ++b) {
            uint8_t* to = codes + (first + b) * N;
            if (factors[b] != factors[b]) memset(to, f.nan_code, N);
            else if (amax[b] >= INF_BITS) encode_elements<N>(from + b * N, N, f, factors[b], amax[b], to);
        }
    }
}

#if ISA_AVX512
template <int N, bool INT, bool SPECIAL> static void decode_group(const uint8_t* __restrict codes, int64_t blocks, const BlockFormat& f, const float* __restrict factors, float* __restrict out, bool stream) {
    typedef __m512i I;
    const I mask = _mm512_set1_epi32((1 << (f.bits - 1)) - 1), normal = _mm512_set1_epi32(1 << f.trailing), base = _mm512_set1_epi32((f.emin - 1 + 127) << 23);
    const I inf_code = _mm512_set1_epi32(f.inf_code), nan_from = _mm512_set1_epi32(f.nan_from), sign = _mm512_set1_epi32((int32_t)0x80000000u);
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
                const I magnitude = _mm512_and_si512(c, mask), small = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(magnitude), quantum));
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
template <int N, bool INT, bool SPECIAL> static void decode_group(const uint8_t* __restrict codes, int64_t blocks, const BlockFormat& f, const float* __restrict factors, float* __restrict out, bool) {
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

// Factors of NaN make NaN by themselves: every NaN here is the canonical one. Infinities times zero are left to the other way.
template <int N> static void decode_many(const uint8_t* codes, int64_t blocks, const BlockFormat& f, const float* factors, float* out, bool stream) {
    if (f.flags & TWOS_COMPLEMENT) decode_group<N, true, false>(codes, blocks, f, factors, out, stream);
    else if (f.flags & SPECIALS) decode_group<N, false, true>(codes, blocks, f, factors, out, stream);
    else decode_group<N, false, false>(codes, blocks, f, factors, out, stream);
}

}}  // namespace gemmsim::NS
