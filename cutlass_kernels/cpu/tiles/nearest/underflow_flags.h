// What x86 says of sums below the least normal float, of operations that round as its mode has it.
#pragma once
#include <xmmintrin.h>
#include "float_state.h"

namespace gemmsim {

// What sums have been since the last call of clear().
struct SmallSums {
    static constexpr unsigned DENORMAL = 1u << 1, UNDERFLOW = 1u << 4;
    static void clear(RoundingState::Direction mode = RoundingState::NEAREST) { _mm_setcsr(mode); }  // as these have it
    static bool seen() { return _mm_getcsr() & (DENORMAL | UNDERFLOW); }
};

}  // namespace gemmsim
