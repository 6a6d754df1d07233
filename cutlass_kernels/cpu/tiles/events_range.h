// Operands of which additions to the float register are watched in float lanes.
#pragma once
#include "tiles/events_fast.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// Factors of which the product, and its error, are normal floats. Sums of them are multiples of the smallest float: tiny ones are exact.
constexpr float LEAST_FACTOR = 0x1p-50f, MOST_FACTOR = 0x1p60f;

INL bool in_range(const float* x, int64_t n) {
    uint32_t least = ~0u, most = 0;  // of magnitudes as bits; zeros are no least one
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

}  // namespace gemmsim::NS
#endif
