// This file rounds vectors of floats to a scaled value set. Each step rounds once. NaN stays NaN, and zeros keep their
// signs.
#pragma once
#include "casts/elementwise.h"
#include "casts/scaled_cast.h"

namespace gemmsim::NS {

typedef C32::V V;
typedef C32::VI VI;
typedef C32::VU VU;
constexpr int L = C32::L;
constexpr float TINY_AMAX = 0x1p-24f;

struct LaneGrid {
    V low, high, whole;
    VI floor;
    VU up;
    int32_t ties;

    explicit LaneGrid(const ScaledGrid& g)
        : low(splat<C32>(g.low)), high(splat<C32>(g.high)), whole(splat<C32>(0x1p23f)), floor(splat_i<C32>((g.emin + 127) << 23)),
          up(splat_u<C32>((uint32_t)(23 - g.trailing) << 23)), ties(g.ties) {}
};

INL V with_sign(V magnitude, V t) { return (V)((VU)magnitude | ((VU)t & C32::SIGN)); }

// Adding and subtracting 2^23 rounds to integers, ties to even.
INL V round_integer(V t, const LaneGrid& g) {
    t = vmax(g.low, vmin(g.high, t));
    const V a = (V)((VU)t & ~C32::SIGN);
    return with_sign((a + g.whole) - g.whole, t);
}

template <bool EVEN> INL V round_element(V t, const LaneGrid& g) {
    const V a = vmin(g.high, (V)((VU)t & ~C32::SIGN));
    const V magic = (V)((VU)imax((VI)((VU)a & C32::EXP), g.floor) + g.up);
    V r = (a + magic) - magic;
    if (!EVEN) {
        const V quantum = magic * 0x1p-23f, twice = (a - r) * 2.0f;
        if (g.ties == TIES_AWAY) r = select<C32>((VI)(twice == quantum), r + quantum, r);
        else r = select<C32>((VI)(twice == -quantum), r - quantum, r);
    }
    return with_sign(r, t);
}

enum Out { AS_IS, DIVIDE, MULTIPLY };
enum Kind { INTEGER_KIND, EVEN_ELEMENT, ODD_ELEMENT };

template <int KIND, bool DIVIDE_IN, int OUT> INL V cast_lanes(V x, V in, V out, const LaneGrid& g) {
    const V t = DIVIDE_IN ? x / in : x * in;
    V r = KIND == INTEGER_KIND ? round_integer(t, g) : round_element<KIND == EVEN_ELEMENT>(t, g);
    if (OUT == DIVIDE) r = r / out;
    if (OUT == MULTIPLY) r = r * out;
    return select<C32>((VI)(r == r), r, (V)splat_u<C32>(C32::NAN_BITS));
}

INL void store_lanes(float* y, V r, bool stream) {
#if ISA_AVX512
    if (stream) return _mm512_stream_ps(y, (__m512)r);
#elif ISA_AVX2
    if (stream) return _mm256_stream_ps(y, (__m256)r);
#endif
    (void)stream;
    store(y, r);
}

// Casts n elements; `in` and `out` are arrays (ARRAYS) or one number each. Integer kinds return whether an input is
// below zero.
template <int KIND, bool DIVIDE_IN, int OUT, bool ARRAYS, bool STREAM> INL VI cast_run(const float* x, float* y, int64_t n, const float* in,
                                                                                       const float* out, const LaneGrid& g) {
    VI negative = {};
    const V in0 = splat<C32>(*in), out0 = splat<C32>(*out);
    int64_t i = 0;
    for (; i + L <= n; i += L) {
        const V v = load<V>(x + i);
        if (KIND == INTEGER_KIND) negative |= (VI)(v < (V){});
        store_lanes(y + i, cast_lanes<KIND, DIVIDE_IN, OUT>(v, ARRAYS ? load<V>(in + i) : in0, ARRAYS ? load<V>(out + i) : out0, g),
                    STREAM);
    }
    if (i < n) {
        const size_t rest = (size_t)(n - i) * 4;
        V v = {}, a = splat<C32>(1.0f), b = a;
        memcpy(&v, x + i, rest);
        if (ARRAYS) {
            memcpy(&a, in + i, rest);
            memcpy(&b, out + i, rest);
        }
        if (KIND == INTEGER_KIND) negative |= (VI)(v < (V){});
        const V r = cast_lanes<KIND, DIVIDE_IN, OUT>(v, ARRAYS ? a : in0, ARRAYS ? b : out0, g);
        memcpy(y + i, &r, rest);
    }
    return negative;
}

INL bool any(VI v) {
    int32_t all = 0;
    for (int i = 0; i < L; ++i) all |= v[i];
    return all != 0;
}

// For L amaxes: `in` is the factor of the elements, and results are divided (INTEGER) or multiplied by `out`.
template <bool INTEGER> INL void scale_lanes(V amax, V high, V* in, V* out) {
    const V one = splat<C32>(1.0f);
    const VI tiny = (VI)(amax <= splat<C32>(TINY_AMAX));
    if (INTEGER) {
        const V scale = high / amax;
        *in = select<C32>(tiny, (V){}, scale);
        *out = select<C32>(tiny, one, scale);
    } else {
        *in = (one / select<C32>(tiny, one, amax)) * high;
        *out = one / *in;
    }
}

// scale_lanes for `n` amaxes. The arrays `in` and `out` hold whole vectors.
template <bool INTEGER> INL void scale_run(const float* amax, int64_t n, V high, float* in, float* out) {
    for (int64_t i = 0; i < n; i += L) {
        V a = splat<C32>(1.0f), p, q;
        memcpy(&a, amax + i, (size_t)(n - i < L ? n - i : L) * 4);
        scale_lanes<INTEGER>(a, high, &p, &q);
        store(in + i, p);
        store(out + i, q);
    }
}

}  // namespace gemmsim::NS
