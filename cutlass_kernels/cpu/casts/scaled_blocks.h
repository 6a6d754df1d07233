// These blocks find their own scale: the block's largest magnitude itself, or that rounded to e8m0 or e4m3.
#pragma once
#include "casts/scaled_lanes.h"

namespace gemmsim::NS {

constexpr int64_t BLOCK_GROUP = 64;
constexpr uint32_t INFINITE = 0x7F800000u;

INL float largest_of(const float* x, int64_t n) {
    VI top = {};
    int64_t i = 0;
    for (; i + L <= n; i += L) top = imax(top, (VI)(load<VU>(x + i) & ~C32::SIGN));
    if (i < n) {
        VU rest = {};
        memcpy(&rest, x + i, (size_t)(n - i) * 4);
        top = imax(top, (VI)(rest & ~C32::SIGN));
    }
#if ISA_AVX512
    return float_from((uint32_t)_mm512_reduce_max_epi32((__m512i)top));
#else
    int32_t m = 0;
    for (int j = 0; j < L; ++j) m = top[j] > m ? top[j] : m;
    return float_from((uint32_t)m);
#endif
}

// The least power of two that is at least amax / high, as factors. The power is 1 for an amax of zero, infinity or NaN.
INL void power_scales(const float* amax, int64_t n, float high, float* in, float* out) {
    for (int64_t i = 0; i < n; ++i) {
        const bool usable = amax[i] > 0 && amax[i] < __builtin_inff();
        const float d = (usable ? amax[i] : 1.0f) / high;
        uint32_t u;
        memcpy(&u, &d, 4);
        const int32_t field = (int32_t)(u >> 23), trailing = (int32_t)(u & 0x7FFFFF);
        int32_t k = field ? field - 127 + (trailing != 0) : trailing > 0x400000 ? -126 : -127;
        if (!usable) k = 0;
        in[i] = float_from((uint32_t)(127 - k) << 23 | (k == 127 ? 0x400000u : 0u));
        out[i] = k == -127 ? 0x1p-127f : float_from((uint32_t)(k + 127) << 23);
    }
}

// e4m3 scales times the tensor's scale: elements are divided by these and multiplied again.
INL void real_scales(const float* amax, int64_t n, float high, float second, float* effective) {
    const ScaledGrid e4m3 = {0, TIES_EVEN, 3, -6, -448.0f, 448.0f};
    const LaneGrid g(e4m3);
    const V one = splat<C32>(1.0f), tensor = splat<C32>(second), divisor = splat<C32>(second * high);
    for (int64_t i = 0; i < n; i += L) {
        V a = {};
        memcpy(&a, amax + i, (size_t)(n - i < L ? n - i : L) * 4);
        const V s = round_element<true>(a / divisor, g);
        store(effective + i, select<C32>((VI)(s == (V){}), one, s) * tensor);
    }
}

// Casts one block with its factors. N is its length, or 0 for any length.
template <int N, int KIND, bool DIVIDE_IN, int OUT> INL VI cast_block(const float* x, float* y, int64_t n, const float* in,
                                                                      const float* out, const LaneGrid& g, bool stream) {
    if (stream) return cast_run<KIND, DIVIDE_IN, OUT, false, true>(x, y, N ? N : n, in, out, g);
    return cast_run<KIND, DIVIDE_IN, OUT, false, false>(x, y, N ? N : n, in, out, g);
}

template <int N, int KIND> static int cast_blocks_of(const ScaledArgs& a, const float* x, float* y, int64_t n, bool stream) {
    const int64_t size = N ? N : a.block;
    const LaneGrid g(a.grid);
    const bool nothing = a.rule == BLOCK_REAL && a.tensor_scale == 0;
    alignas(64) float amax[BLOCK_GROUP], in[BLOCK_GROUP], out[BLOCK_GROUP];
    VI negative = {};
    int status = 0;
    stream = stream && size % L == 0;
    for (int64_t first = 0; first < n; first += BLOCK_GROUP * size) {
        const int64_t left = n - first, count = left < BLOCK_GROUP * size ? (left + size - 1) / size : BLOCK_GROUP;
        bool finite = true;
        for (int64_t b = 0; b < count; ++b) {
            const int64_t at = first + b * size;
            amax[b] = largest_of(x + at, N && n - at >= N ? N : n - at < size ? n - at : size);
            finite &= amax[b] < __builtin_inff();
        }
        if (!finite && a.rule != BLOCK_POWER) status |= AMAX_NOT_FINITE;
        if (a.rule == BLOCK_AMAX) scale_run<KIND == INTEGER_KIND>(amax, count, g.high, in, out);
        else if (a.rule == BLOCK_POWER) power_scales(amax, count, a.grid.high, in, out);
        else real_scales(amax, count, a.grid.high, a.tensor_scale, in);
        for (int64_t b = 0; b < count; ++b) {
            const int64_t at = first + b * size, m = n - at < size ? n - at : size;
            const bool whole = m == size, flow = stream && whole;
            if (nothing) {
                for (int64_t i = at; i < at + m; ++i) y[i] = x[i] == x[i] ? __builtin_copysignf(0.0f, x[i]) : float_from(C32::NAN_BITS);
            } else if (KIND == INTEGER_KIND) {
                negative |= whole ? cast_block<N, KIND, false, DIVIDE>(x + at, y + at, m, in + b, out + b, g, flow)
                                  : cast_block<0, KIND, false, DIVIDE>(x + at, y + at, m, in + b, out + b, g, flow);
            } else if (a.rule == BLOCK_REAL) {
                cast_block<0, KIND, true, MULTIPLY>(x + at, y + at, m, in + b, in + b, g, flow);
            } else {
                if (whole) cast_block<N, KIND, false, MULTIPLY>(x + at, y + at, m, in + b, out + b, g, flow);
                else cast_block<0, KIND, false, MULTIPLY>(x + at, y + at, m, in + b, out + b, g, flow);
            }
        }
    }
    if (a.grid.low == 0 && any(negative)) status |= NEGATIVE_INPUT;
    return status;
}

template <int KIND> static int cast_blocks(const ScaledArgs& a, const float* x, float* y, int64_t n, bool stream) {
    if (a.block == 32) return cast_blocks_of<32, KIND>(a, x, y, n, stream);
    if (a.block == 16) return cast_blocks_of<16, KIND>(a, x, y, n, stream);
    return cast_blocks_of<0, KIND>(a, x, y, n, stream);
}

}  // namespace gemmsim::NS
