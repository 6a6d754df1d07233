// This file rounds many whole blocks to the values that their codes have, without making codes.
#pragma once
#include "casts/block_many.h"

namespace gemmsim::NS {

// Rounds x times `encode` to quanta and multiplies by `decode`. The result is that of encode_group followed by
// decode_group. Integers have no -0. `out` may be `x`.
#if ISA_AVX512
template <int N, bool INT> static void fake_group(const float* x, int64_t blocks, const BlockFormat& f, const float* encode,
                                                  const float* decode, float* out, bool stream) {
    typedef __m512i I;
    const I low = _mm512_set1_epi32((f.emin + 127) << 23), top = _mm512_set1_epi32((int32_t)bits_of(f.max)),
            up = _mm512_set1_epi32((23 - f.trailing) << 23);
    const I positive = _mm512_set1_epi32(0x7FFFFFFF), exponent = _mm512_set1_epi32(0x7F800000);
    for (int64_t b = 0; b < blocks; ++b) {
        const __m512 to = _mm512_set1_ps(encode[b]), back = _mm512_set1_ps(decode[b]);
#pragma GCC unroll 2
        for (int i = 0; i < N; i += 16) {
            prefetch_group(x + b * N + i, GROUP * N);
            const I u = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(x + b * N + i), to));
            const I a = _mm512_min_epi32(_mm512_and_si512(u, positive), top);
            const __m512 magic = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_max_epi32(_mm512_and_si512(a, exponent), low), up));
            const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(_mm512_castsi512_ps(a), magic), magic);
            // sign ? u : rounded, bit by bit.
            __m512 v = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(positive, u, _mm512_castps_si512(rounded), 0xAC));
            if (INT) v = _mm512_add_ps(v, _mm512_setzero_ps());
            v = _mm512_mul_ps(v, back);
            if (stream) _mm512_stream_ps(out + b * N + i, v);
            else _mm512_storeu_ps(out + b * N + i, v);
        }
    }
}
#else
template <int N, bool INT> static void fake_group(const float* x, int64_t blocks, const BlockFormat& f, const float* encode,
                                                  const float* decode, float* out, bool) {
    const int32_t low = (f.emin + 127) << 23, top = (int32_t)bits_of(f.max), up = (23 - f.trailing) << 23;
    for (int64_t b = 0; b < blocks; ++b) {
        const float to = encode[b], back = decode[b];
        for (int i = 0; i < N; ++i) {
            const uint32_t u = bits_of(x[b * N + i] * to);
            int32_t a = (int32_t)(u & 0x7FFFFFFF);
            a = a < top ? a : top;
            int32_t field = a & 0x7F800000;
            field = field > low ? field : low;
            const float magic = float_from((uint32_t)(field + up));
            const float rounded = (float_from((uint32_t)a) + magic) - magic;
            float v = float_from(bits_of(rounded) | (u & 0x80000000u));
            if (INT) v += 0.0f;
            out[b * N + i] = v * back;
        }
    }
}
#endif

// The value of a scale code times the tensor's scale. NaN is the canonical NaN.
INL float decode_factor(const BlockFormat& f, int32_t scale) {
    const float factor = f.flags & TENSOR_SCALE ? f.tensor_scale * f.decode[scale] : f.decode[scale];
    return factor == factor ? factor : float_from(C32::NAN_BITS);
}

// Returns the number of blocks done. It stops before the first group with NaN or infinity, or with a scale beyond
// float.
template <int N> static int64_t fake_many(const float* x, int64_t blocks, const BlockFormat& f, float* out, bool stream) {
    for (int64_t first = 0; first < blocks; first += GROUP) {
        const int64_t count = blocks - first < GROUP ? blocks - first : GROUP;
        uint32_t amax[GROUP];
        int32_t scales[GROUP];
        float encode[GROUP], decode[GROUP];
        bool plain = group_scales<N>(x + first * N, count, f, scales, encode, amax);
        for (int64_t b = 0; b < count; ++b) {
            decode[b] = decode_factor(f, scales[b]);
            plain &= decode[b] < __builtin_inff();
        }
        if (!plain) return first;
        if (f.flags & TWOS_COMPLEMENT) fake_group<N, true>(x + first * N, count, f, encode, decode, out + first * N, stream);
        else fake_group<N, false>(x + first * N, count, f, encode, decode, out + first * N, stream);
    }
    return blocks;
}

}  // namespace gemmsim::NS
