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

}  // namespace gemmsim
