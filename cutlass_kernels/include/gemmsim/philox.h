// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the rule that assigns its
// words to roundings. All functions depend on their arguments alone; nothing has state.
#pragma once
#include "gemmsim/types.h"

namespace gemmsim {

constexpr uint32_t PHILOX_M0 = 0xD2511F53u, PHILOX_M1 = 0xCD9E8D57u;
constexpr uint32_t PHILOX_W0 = 0x9E3779B9u, PHILOX_W1 = 0xBB67AE85u;

struct Words4 {
    uint32_t w[4];
};

// a * b. A GPU has an instruction for it. For the 64-bit C++ product the compiler would append an addition of zero.
GEMMSIM_HD uint64_t wide_product(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint64_t both;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(both) : "r"(a), "r"(b));
    return both;
#else
    return (uint64_t)a * b;
#endif
}

// The generator's state: its words and the key of the next round.
struct PhiloxState {
    uint32_t k0, k1, c0, c1, c2, c3;

    GEMMSIM_HD void round() {
        const uint64_t p0 = wide_product(PHILOX_M0, c0), p1 = wide_product(PHILOX_M1, c2);
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    GEMMSIM_HD Words4 words() const { return Words4{{c0, c1, c2, c3}}; }
};
constexpr int PHILOX_ROUNDS = 10;

GEMMSIM_HD Words4 philox(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    PhiloxState state = {k0, k1, c0, c1, c2, c3};
    for (int i = 0; i < PHILOX_ROUNDS; ++i) state.round();
    return state.words();
}

// Draws per Philox call: eight 16-bit halves when r <= 16, four words otherwise.
GEMMSIM_HD int draws_per_call(int r) { return r <= 16 ? 8 : 4; }

// The j-th draw of a call, as an integer uniform in [0, 2^r).
GEMMSIM_HD uint32_t pick(const Words4& x, int j, int r) {
    if (r <= 16) return ((x.w[j >> 1] >> ((j & 1) * 16)) & 0xFFFFu) >> (16 - r);
    return x.w[j] >> (32 - r);
}

// The random bits for step k of output element (row, col) of a matrix product.
GEMMSIM_HD uint32_t draw_step(uint64_t seed, uint64_t row, uint32_t col, uint64_t k, int site, int r) {
    const int n = draws_per_call(r);
    const Words4 x = philox((uint32_t)seed, (uint32_t)(seed >> 32), col, (uint32_t)row, (uint32_t)(k / n),
                            (uint32_t)site | ((uint32_t)(row >> 32) << 8));
    return pick(x, (int)(k % n), r);
}

// The random bits for element i (row-major logical index) of an element-wise rounding.
GEMMSIM_HD uint32_t draw_element(uint64_t seed, uint64_t i, int site, int r) {
    const int n = draws_per_call(r);
    const uint64_t c = i / n;
    const Words4 x = philox((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)c, (uint32_t)(c >> 32), 0u, (uint32_t)site);
    return pick(x, (int)(i % n), r);
}

}  // namespace gemmsim
