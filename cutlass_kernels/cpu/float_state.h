// The floating-point environment in which every kernel runs.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gemmsim {

// Default rounding and no flushing, whatever the calling thread has set (torch.set_flush_denormal does).
struct [[maybe_unused]] FloatState {
#if defined(__x86_64__)
    unsigned saved;
    FloatState() : saved(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    ~FloatState() { _mm_setcsr(saved); }
#else
    FloatState() {}
#endif
};

// Where an instruction rounds as this register says: the mode for what is called while this lives, nearest even after.
#if defined(__x86_64__)
struct RoundingState {
    enum Direction : unsigned { NEAREST = 0x1F80, DOWN = 0x3F80, UP = 0x5F80, TO_ZERO = 0x7F80 };
    explicit RoundingState(Direction mode) { _mm_setcsr(mode); }
    ~RoundingState() { _mm_setcsr(0x1F80); }
    RoundingState(const RoundingState&) = delete;
    RoundingState& operator=(const RoundingState&) = delete;
};
#endif

}  // namespace gemmsim
