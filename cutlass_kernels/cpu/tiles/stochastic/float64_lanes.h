// Computes float lanes in double lanes, in which products of floats are exact.
#pragma once
#include "vec.h"

namespace gemmsim::NS {

// Widens float lanes a, b and s and integers R to 64-bit lanes, applies f to them, and converts its results to floats.
template <class F> INL C32::V in_two_halves(C32::V a, C32::V b, C32::V s, C32::VU R, F f) {
    typedef double Pair __attribute__((vector_size(2 * WIDTH), may_alias));
    typedef uint64_t Draws64 __attribute__((vector_size(2 * WIDTH), may_alias));
    C64::V x[2], y[2], z[2];
    C64::VU draws[2];
    const Pair wide_a = __builtin_convertvector(a, Pair), wide_b = __builtin_convertvector(b, Pair),
               wide_s = __builtin_convertvector(s, Pair);
    const Draws64 wide_draws = __builtin_convertvector(R, Draws64);
    memcpy(x, &wide_a, sizeof x);
    memcpy(y, &wide_b, sizeof y);
    memcpy(z, &wide_s, sizeof z);
    memcpy(draws, &wide_draws, sizeof draws);
    for (int h = 0; h < 2; ++h) z[h] = f(x[h], y[h], z[h], draws[h]);
    Pair r;
    memcpy(&r, z, sizeof r);
    return __builtin_convertvector(r, C32::V);
}

}  // namespace gemmsim::NS
