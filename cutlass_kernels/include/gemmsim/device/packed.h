// Fused multiply-adds of two binary16 (or bfloat16) numbers at once, each rounded once to nearest even. Subnormals are not flushed;
// infinities and NaN follow IEEE 754. The payload and the sign of a NaN are not defined.
#pragma once
#include "gemmsim/device/storage.h"
#include "gemmsim/exact.h"

namespace gemmsim {

// An element of a packed pair, by its bits. `from` rounds to it; a NaN has any payload.
template <DType D> struct Packed {
    uint16_t word;
    static GEMMSIM_HD Packed of(uint16_t w) { return {w}; }
    static GEMMSIM_HD Packed from(float x) { return {D == F16 ? half_any_nan(x) : bf16_any_nan(x)}; }
};
// An element that both halves of a word contain.
template <DType D> struct Twice {
    uint32_t word;
    static GEMMSIM_HD Twice of(uint16_t w) { return {w * 0x10001u}; }
    static GEMMSIM_HD Twice from(float x) { return of(Packed<D>::from(x).word); }
};
// The DType of either type above; -1 for any other type.
template <class T> constexpr int PACKED_DTYPE = -1;
template <DType D> constexpr int PACKED_DTYPE<Packed<D>> = D;
template <DType D> constexpr int PACKED_DTYPE<Twice<D>> = D;

#if defined(__CUDA_ARCH__)
template <DType DTYPE> GEMMSIM_HD uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r;
    if constexpr (DTYPE == F16) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
#else
template <DType DTYPE> inline uint16_t fma_one(uint16_t a, uint16_t b, uint16_t c) {
    constexpr double inf = number(0x7FFull << 52), hi = DTYPE == F16 ? 65504.0 : 0x1.fep127;
    constexpr Cast format{.p = DTYPE == F16 ? 11 : 8,
                          .emin = DTYPE == F16 ? -14 : -126,
                          .mode = RNE,
                          .rbits = 0,
                          .flags = PRESENT | NEG_ZERO,
                          .emax = DTYPE == F16 ? 15 : 127,
                          .lo = -hi,
                          .hi = hi,
                          .over_neg = -inf,
                          .over_pos = inf,
                          .inf_neg = -inf,
                          .inf_pos = inf};
    auto value = [](uint16_t h) { return (double)load_value<DTYPE, float>(h); };
    return store_value<DTYPE>((float)fused_step(value(a), value(b), value(c), format, 0));
}
template <DType DTYPE> inline uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t low = fma_one<DTYPE>((uint16_t)a, (uint16_t)b, (uint16_t)c);
    return low | (uint32_t)fma_one<DTYPE>((uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(c >> 16)) << 16;
}
#endif

}  // namespace gemmsim
