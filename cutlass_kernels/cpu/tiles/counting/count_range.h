// The range of operands for which float lanes count events at additions to the float register.
#pragma once
#include "tiles/counting/count_fast.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// For factors in this range, the product is a normal float and its error is a float. Sums of these are multiples of the smallest
// float, so tiny sums are exact.
constexpr float LEAST_FACTOR = 0x1p-50f, MOST_FACTOR = 0x1p60f;

INL bool in_range(const float* x, int64_t n) {
    uint32_t least = ~0u, most = 0;  // magnitudes as bits; zeros do not count for `least`
    for (int64_t i = 0; i < n; ++i) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= C32::FRAC | C32::EXP;
        most = u > most ? u : most;
        least = u - 1 < least ? u - 1 : least;
    }
    uint32_t low, high;
    memcpy(&low, &LEAST_FACTOR, sizeof low);
    memcpy(&high, &MOST_FACTOR, sizeof high);
    return most <= high && least >= low - 1;
}

// The same for vectors that are checked one by one: bits without the sign, times two.
struct VectorRange {
    C32::VU least = ~C32::VU{}, most = {};
    INL_MEMBER void check(C32::V x) {
        const C32::VU u = (C32::VU)x << 1;
        most = umax(most, u);
        least = umin(least, u - 1);
    }
    INL_MEMBER void check_both(C32::V small, C32::V large) {  // of two vectors
        most = umax(most, (C32::VU)large << 1);
        least = umin(least, umin(((C32::VU)small << 1) - 1, ((C32::VU)large << 1) - 1));  // if one is zero, the other counts
    }
    INL_MEMBER bool holds() const {
        const C32::VU low = (C32::VU)splat<C32>(LEAST_FACTOR) << 1, high = (C32::VU)splat<C32>(MOST_FACTOR) << 1;
        return none_set((C32::VI)((most > high) | (least < low - 1)));
    }
};

}  // namespace gemmsim::NS
#endif
