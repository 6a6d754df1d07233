// Random bits of one rounding for successive terms, where a block of Philox serves eight (or four) of them; also those of one
// element.
#pragma once
#include "gemmsim/device/carrier.h"
#include "gemmsim/philox.h"

namespace gemmsim {

// philox.h's pick without an index into the block, which would move the block from registers to memory.
template <int BITS> GEMMSIM_HD uint32_t pick_held(const Words4& x, uint32_t at) {
    constexpr bool halves = BITS <= 16;
    const uint32_t w = halves ? at >> 1 : at;
    const uint32_t word = w < 2 ? (w == 0 ? x.w[0] : x.w[1]) : (w == 2 ? x.w[2] : x.w[3]);
    if constexpr (halves) return ((at & 1 ? word >> 16 : word) & 0xFFFFu) >> (16 - BITS);
    else return word >> (32 - BITS);
}

// philox.h's draw_element in few instructions, for code that few threads run.
template <int BITS> GEMMSIM_HD uint32_t draw_element_shortly(uint64_t seed, uint64_t i, int site) {
    constexpr uint32_t n = BITS <= 16 ? 8 : 4;
    const uint64_t c = i / n;
    PhiloxState state = {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)c, (uint32_t)(c >> 32), 0u, (uint32_t)site};
    GEMMSIM_NO_UNROLL for (int k = 0; k < PHILOX_ROUNDS; ++k) state.round();
    return pick_held<BITS>(state.words(), (uint32_t)(i % n));
}

// The element of a product whose rounding draws.
struct Place2D {
    uint64_t seed, row;
    uint32_t col;
};

// The draws from one stream for one element, in ascending k. Without USED there are none.
template <Cast C, int SITE, bool USED = (C.mode >= SR)> struct HeldDraws {
    GEMMSIM_HD void start() {}
    GEMMSIM_HD uint32_t draw(const Place2D&, uint32_t) { return 0; }
};
template <Cast C, int SITE> struct HeldDraws<C, SITE, true> {
    static constexpr uint32_t N = C.rbits <= 16 ? 8 : 4;
    Words4 words;
    uint32_t held;

    GEMMSIM_HD void start() { held = 0xFFFFFFFFu; }
    GEMMSIM_HD uint32_t draw(const Place2D& place, uint32_t k) {
        if (k / N != held) {
            held = k / N;
            words = philox((uint32_t)place.seed, (uint32_t)(place.seed >> 32), place.col, (uint32_t)place.row, held,
                           (uint32_t)SITE | (uint32_t)(place.row >> 32) << 8);
        }
        return pick_held<C.rbits>(words, k % N);
    }
};

}  // namespace gemmsim
