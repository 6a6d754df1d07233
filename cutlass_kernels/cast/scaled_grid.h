// The arithmetic of scaled casts for one element, in float32. Each step is rounded once. NaN stays NaN, and zero keeps its sign.
// The vector code of the CPU library (cpu/casts/scaled_lanes.h, scaled_blocks.h) computes the same bits.
#pragma once
#include "gemmsim/device/storage.h"

namespace gemmsim {

// The source of the scale. GIVEN: a tensor of amax. BLOCK_AMAX: the largest magnitude of each block. BLOCK_POWER: its power of two,
// rounded up (e8m0). BLOCK_REAL: that magnitude in e4m3 under the tensor's scale (NVFP4). AFFINE: the ends of a range.
enum class ScaledRule : int32_t { GIVEN = 0, BLOCK_AMAX = 1, BLOCK_POWER = 2, BLOCK_REAL = 3, AFFINE = 4 };
enum class ScaledTies : int32_t { EVEN = 0, AWAY = 1, TOWARD_ZERO = 2 };
enum ScaledStatus : int32_t { NEGATIVE_INPUT = 1, AMAX_NOT_FINITE = 2 };

// The values: integers from `low` to `high`, or numbers n * 2^(max(e, emin) - trailing) of magnitude up to `high`.
struct ScaledGrid {
    bool integer;
    ScaledTies ties;
    int32_t trailing, emin;
    float low, high;
};

constexpr ScaledGrid E4M3_SCALES{.integer = false, .ties = ScaledTies::EVEN, .trailing = 3, .emin = -6, .low = -448.0f, .high = 448.0f};
constexpr uint32_t INFINITE = 0x7F800000u, MAGNITUDE = 0x7FFFFFFFu;
constexpr float TINY_AMAX = 0x1p-24f;

GEMMSIM_HD float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}
GEMMSIM_HD float signed_as(float magnitude, float t) {
    return from_bits<float>((to_bits(magnitude) & MAGNITUDE) | (to_bits(t) & ~MAGNITUDE));
}
GEMMSIM_HD float nearest_integer(float v) {
    const float a = from_bits<float>(to_bits(v) & MAGNITUDE);
    return signed_as(a < 0x1p23f ? add_rn(add_rn(a, 0x1p23f), -0x1p23f) : a, v);
}

// Rounds t to G. Adding and subtracting 2^23 quanta rounds to quanta, ties to even.
template <ScaledGrid G> GEMMSIM_HD float round_scaled(float t) {
    if constexpr (G.integer) {
        const float c = t > G.high ? G.high : t < G.low ? G.low : t, a = from_bits<float>(to_bits(c) & MAGNITUDE);
        return signed_as(add_rn(add_rn(a, 0x1p23f), -0x1p23f), c);
    } else {
        const float b = from_bits<float>(to_bits(t) & MAGNITUDE), a = b > G.high ? G.high : b;
        const uint32_t e = to_bits(a) & INFINITE, least = (uint32_t)(G.emin + 127) << 23;
        const float magic = from_bits<float>((e > least ? e : least) + ((uint32_t)(23 - G.trailing) << 23));
        float r = add_rn(add_rn(a, magic), -magic);
        if constexpr (G.ties != ScaledTies::EVEN) {
            const float quantum = magic * 0x1p-23f, twice = add_rn(a, -r) * 2.0f;
            if (G.ties == ScaledTies::AWAY && twice == quantum) r = add_rn(r, quantum);
            if (G.ties == ScaledTies::TOWARD_ZERO && twice == -quantum) r = add_rn(r, -quantum);
        }
        return signed_as(r, t);
    }
}

// `in` multiplies elements (DIVIDED: divides them). `out` divides results that are integers and multiplies others.
struct ScaledFactors {
    float in, out;
};

template <ScaledGrid G> GEMMSIM_HD ScaledFactors factors_of(float amax) {
    const bool tiny = amax <= TINY_AMAX;
    if constexpr (G.integer) {
        const float scale = div_rn(G.high, amax);
        return {tiny ? 0.0f : scale, tiny ? 1.0f : scale};
    } else {
        const float in = mul_rn(div_rn(1.0f, tiny ? 1.0f : amax), G.high);
        return {in, div_rn(1.0f, in)};
    }
}

// The least power of two that is at least amax / high, as factors. It is 1 for an amax of zero, infinity or NaN.
template <ScaledGrid G> GEMMSIM_HD ScaledFactors power_factors(uint32_t amax) {
    const bool usable = amax > 0 && amax < INFINITE;
    const uint32_t u = to_bits(div_rn(usable ? from_bits<float>(amax) : 1.0f, G.high));
    const int32_t field = (int32_t)(u >> 23), trailing = (int32_t)(u & 0x7FFFFF);
    int32_t k = field ? field - 127 + (trailing != 0) : trailing > 0x400000 ? -126 : -127;
    if (!usable) k = 0;
    return {from_bits<float>((uint32_t)(127 - k) << 23 | (k == 127 ? 0x400000u : 0u)),
            k == -127 ? 0x1p-127f : from_bits<float>((uint32_t)(k + 127) << 23)};
}

// The product of the block's scale in e4m3 and the tensor's scale.
template <ScaledGrid G> GEMMSIM_HD ScaledFactors real_factors(uint32_t amax, float tensor) {
    const float s = round_scaled<E4M3_SCALES>(div_rn(from_bits<float>(amax), mul_rn(tensor, G.high)));
    const float effective = mul_rn(s == 0 ? 1.0f : s, tensor);
    return {effective, effective};
}

template <ScaledGrid G, bool DIVIDED, bool AS_INTEGER> GEMMSIM_HD float cast_scaled(float x, const ScaledFactors& f) {
    float r = round_scaled<G>(DIVIDED ? div_rn(x, f.in) : mul_rn(x, f.in));
    if constexpr (!AS_INTEGER) r = G.integer ? div_rn(r, f.out) : mul_rn(r, f.out);
    return r == r ? r : quiet_nan<float>();
}

// The step of a range from `low` to `high`, and the number of the step at zero.
struct AffineStep {
    float step, zero;
};
template <ScaledGrid G> GEMMSIM_HD AffineStep affine_step(float low, float high, float steps) {
    const float step = div_rn(add_rn(high, -low), steps);
    return {step, add_rn(nearest_integer(div_rn(low, step)), -G.low)};
}
template <ScaledGrid G> GEMMSIM_HD float cast_affine(float x, const AffineStep& s) {
    float q = add_rn(nearest_integer(div_rn(x, s.step)), -s.zero);
    q = q < G.low ? G.low : q > G.high ? G.high : q;
    const float r = mul_rn(add_rn(q, s.zero), s.step);
    return r == r ? r : quiet_nan<float>();
}

}  // namespace gemmsim
