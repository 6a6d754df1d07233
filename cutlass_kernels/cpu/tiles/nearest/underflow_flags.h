// Flags by which x86 reports sums below the least normal float. Operations that round by the processor's mode set them; an instruction
// with an embedded rounding direction does not.
#pragma once
#include <xmmintrin.h>
#include "float_state.h"

namespace gemmsim {

// Whether sums were small since the last call of clear().
struct SmallSums {
    static constexpr unsigned DENORMAL = 1u << 1, UNDERFLOW = 1u << 4;
    // The values of Direction have all flags clear.
    static void clear(RoundingState::Direction mode = RoundingState::NEAREST) { _mm_setcsr(mode); }
    static bool seen() { return _mm_getcsr() & (DENORMAL | UNDERFLOW); }
};

}  // namespace gemmsim
