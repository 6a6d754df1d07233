// This file sets the floating-point environment that kernels need: default rounding, no flushing, and scopes with
// another direction.
#pragma once
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gemmsim {

#if defined(__aarch64__)
// FPCR holds the rounding direction (bits 22 and 23) and the flush-to-zero mode. No memory access moves past a change.
inline uint64_t get_fpcr() {
    uint64_t x;
    __asm__ volatile("mrs %0, fpcr" : "=r"(x));
    return x;
}
inline void set_fpcr(uint64_t x) { __asm__ volatile("msr fpcr, %0" : : "r"(x) : "memory"); }
#endif

// was_inexact() says whether a floating-point operation rounded its result since forget_inexact(). No memory access
// moves past either.
#if defined(__x86_64__)
inline void forget_inexact() {
    const unsigned none = _mm_getcsr() & ~0x3Fu;
    __asm__ volatile("ldmxcsr %0" : : "m"(none) : "memory");
}
inline bool was_inexact() {
    unsigned x;
    __asm__ volatile("stmxcsr %0" : "=m"(x) : : "memory");
    return x & 0x20;
}
#elif defined(__aarch64__)
inline void forget_inexact() { __asm__ volatile("msr fpsr, %0" : : "r"((uint64_t)0) : "memory"); }
inline bool was_inexact() {
    uint64_t x;
    __asm__ volatile("mrs %0, fpsr" : "=r"(x) : : "memory");
    return x & 0x10;
}
#else
inline void forget_inexact() {}
inline bool was_inexact() { return true; }  // the flag is not readable here: callers then take their fallback, which is always right
#endif

// While a FloatState lives, the thread rounds to nearest and does not flush subnormals. It restores the caller's
// settings afterwards, such as those of torch.set_flush_denormal.
struct [[maybe_unused]] FloatState {
#if defined(__x86_64__)
    unsigned saved;
    FloatState() : saved(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    ~FloatState() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
    uint64_t saved;
    FloatState() : saved(get_fpcr()) { set_fpcr(0); }
    ~FloatState() { set_fpcr(saved); }
#else
    FloatState() {}
#endif
};

// Where instructions take their rounding direction from the control register, RoundingState sets that direction. Its
// destructor sets the default state: nearest even.
#if defined(__x86_64__)
struct RoundingState {
    enum Direction : unsigned { NEAREST = 0x1F80, DOWN = 0x3F80, UP = 0x5F80, TO_ZERO = 0x7F80 };
    explicit RoundingState(Direction mode) { _mm_setcsr(mode); }
    ~RoundingState() { _mm_setcsr(0x1F80); }
    RoundingState(const RoundingState&) = delete;
    RoundingState& operator=(const RoundingState&) = delete;
};
// RoundingWithin sets another direction while it lives. Its destructor restores the previous direction and flags.
struct RoundingWithin {
    const unsigned saved = _mm_getcsr();
    explicit RoundingWithin(RoundingState::Direction mode) { _mm_setcsr(mode); }
    ~RoundingWithin() { _mm_setcsr(saved); }
    RoundingWithin(const RoundingWithin&) = delete;
    RoundingWithin& operator=(const RoundingWithin&) = delete;
};
#elif defined(__aarch64__)
struct RoundingState {
    enum Direction : uint64_t { NEAREST = 0, DOWN = 2u << 22, UP = 1u << 22, TO_ZERO = 3u << 22 };
    explicit RoundingState(Direction mode) { set_fpcr(mode); }
    ~RoundingState() { set_fpcr(0); }
    RoundingState(const RoundingState&) = delete;
    RoundingState& operator=(const RoundingState&) = delete;
};
struct RoundingWithin {
    const uint64_t saved = get_fpcr();
    explicit RoundingWithin(RoundingState::Direction mode) { set_fpcr(mode); }
    ~RoundingWithin() { set_fpcr(saved); }
    RoundingWithin(const RoundingWithin&) = delete;
    RoundingWithin& operator=(const RoundingWithin&) = delete;
};
#endif

}  // namespace gemmsim
