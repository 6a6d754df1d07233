// Encodes two 16-bit elements at a time, as the halves of a word. Encoding needs nothing wider than bfloat16 where elements are
// rounded to fewer bits under a scale that is a power of two: a bfloat16 has 8 significant bits and float32's exponents.
#pragma once
#include "gemmsim/device/packed.h"
#include "mx/config.h"

namespace gemmsim {

// Clears the sign bits of both halves.
GEMMSIM_HD constexpr uint32_t magnitudes_of(uint32_t x) { return x & 0x7FFF7FFFu; }

#if defined(__CUDA_ARCH__)
// The larger of two magnitudes in each half; NaN if either is NaN.
template <DType D> GEMMSIM_HD uint32_t larger_pair(uint32_t a, uint32_t b) {
    uint32_t r;
    if constexpr (D == F16) asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
// The larger and the smaller of two magnitudes of bfloat16 numbers in each half.
GEMMSIM_HD uint32_t most_pair(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
GEMMSIM_HD uint32_t least_pair(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
// The low and the high bytes of the halves of both words.
GEMMSIM_HD uint32_t low_bytes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x6420); }
GEMMSIM_HD uint32_t high_bytes(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7531); }
#else  // integers order magnitudes as their values do, and NaN lies above infinity
inline uint32_t most_pair(uint32_t a, uint32_t b) {
    const uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a & 0xFFFFu : b & 0xFFFFu;
    return low | (a >> 16 > b >> 16 ? a & 0xFFFF0000u : b & 0xFFFF0000u);
}
inline uint32_t least_pair(uint32_t a, uint32_t b) { return ~most_pair(~a, ~b); }
template <DType> inline uint32_t larger_pair(uint32_t a, uint32_t b) { return most_pair(a, b); }
inline uint32_t low_bytes(uint32_t a, uint32_t b) { return (a & 0xFFu) | (a >> 8 & 0xFF00u) | (b & 0xFFu) << 16 | (b & 0xFF0000u) << 8; }
inline uint32_t high_bytes(uint32_t a, uint32_t b) { return low_bytes(a >> 8, b >> 8); }
#endif

GEMMSIM_HD constexpr bool is_power_of_two(uint32_t bits) { return (bits & 0x7FFFFFu) == 0 && bits < INFINITY_BITS; }

// Whether elements of plain blocks of bfloat16 take the short path in pairs. Two facts make it exact. First, a product with the
// factor is exact unless it lies far below the smallest quantum. Second, 2^7 quanta have the same exponent with and without an
// element added, so that the addition rounds to quanta.
template <MxFormat F> GEMMSIM_HD constexpr bool takes_pairs() {
    return is_plain<F>() && F.powers && !F.integer && F.trailing < 7 && F.emin - F.trailing > -100 && is_power_of_two(F.first_factor) &&
           (to_bits(F.max) & 0xFFFFu) == 0;
}

// Two factors that are powers of two, as bfloat16.
GEMMSIM_HD uint32_t factor_pair(float low, float high) { return to_bits(low) >> 16 | (to_bits(high) & 0xFFFF0000u); }

// The codes of both halves of `x` without their signs, one in each half. This is code_magnitude (element.h) in bfloat16.
template <MxFormat F> GEMMSIM_HD uint32_t pair_magnitudes(uint32_t x, uint32_t factors) {
    constexpr uint32_t both = 0x10001u, drop = 7 - F.trailing, low = (uint32_t)(F.emin + 127) << 7, quanta = (127u + drop) << 7;
    const uint32_t v = fma_pair<BF16>(magnitudes_of(x), factors, 0u), a = least_pair(v, (to_bits(F.max) >> 16) * both);
    const uint32_t field = most_pair(a & 0x7F80u * both, low * both);
    const uint32_t sum = fma_pair<BF16>(field, quanta * both, a);
    return sum - field - ((drop << 7) + (low >> drop)) * both + (field >> drop);  // no half of the result is negative
}

// The codes of four elements, one in each byte.
template <MxFormat F> GEMMSIM_HD uint32_t pair_codes(uint32_t first, uint32_t second, uint32_t factors, uint32_t more_factors) {
    const uint32_t magnitudes = low_bytes(pair_magnitudes<F>(first, factors), pair_magnitudes<F>(second, more_factors));
    return magnitudes | (high_bytes(first, second) >> (8 - F.bits) & (1u << (F.bits - 1)) * 0x01010101u);
}

}  // namespace gemmsim
