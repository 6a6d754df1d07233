// Philox for output columns: the vector form of include/gemmsim/philox.h.
// 64-bit lanes hold 32-bit words, because the 32x32 -> 64 multiplier reads only the low half of a lane: whatever
// stands in the high half is garbage until the words are read out.
#pragma once
#include "vec.h"
#include "gemmsim/philox.h"

namespace gemmsim::NS {

#define INL_MEMBER inline __attribute__((always_inline))

// Counters of N vectors.
template <int N> struct Counters {
    C64::VU x0[N], x1[N], x2[N], x3[N];

    // From round FROM on.
    template <int FROM> INL_MEMBER void rounds(uint64_t seed) {
        typedef C64::VU VU;
        const VU m0 = splat_u<C64>(PHILOX_M0), m1 = splat_u<C64>(PHILOX_M1);
#pragma GCC unroll 10
        for (uint32_t round = FROM; round < 10; ++round) {
            const VU q0 = splat_u<C64>((uint32_t)((uint32_t)seed + round * PHILOX_W0));
            const VU q1 = splat_u<C64>((uint32_t)((uint32_t)(seed >> 32) + round * PHILOX_W1));
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) {
                const VU p0 = mul32(m0, x0[n]), p1 = mul32(m1, x2[n]);
                x0[n] = (p1 >> 32) ^ x1[n] ^ q0;
                x2[n] = (p0 >> 32) ^ x3[n] ^ q1;
                x1[n] = p1;
                x3[n] = p0;
            }
        }
    }
};

template <int N> INL void philox_lanes(C64::VU (&x0)[N], uint32_t row, uint32_t block, uint32_t last, uint64_t seed, C64::VU (&w)[N][4]) {
    Counters<N> c;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        c.x0[n] = x0[n];
        c.x1[n] = splat_u<C64>(row);
        c.x2[n] = splat_u<C64>(block);
        c.x3[n] = splat_u<C64>(last);
    }
    c.template rounds<0>(seed);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        w[n][0] = c.x0[n];
        w[n][1] = c.x1[n];
        w[n][2] = c.x2[n];
        w[n][3] = c.x3[n];
    }
}

#if ISA_NEON
// The same in lanes of 32 bits: the multiplication reads them in pairs.
template <int N> INL void philox_words(uint32x4_t (&x0)[N], uint32_t row, uint32_t block, uint32_t last, uint64_t seed,
                                       uint32x4_t (&w)[N][4]) {
    uint32x4_t x1[N], x2[N], x3[N];
    const uint32x2_t m0 = vdup_n_u32(PHILOX_M0), m1 = vdup_n_u32(PHILOX_M1);
    auto product = [](uint32x4_t x, uint32x2_t m, uint32x4_t* high) __attribute__((always_inline)) {
        const uint32x4_t a = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), m)),
                         b = vreinterpretq_u32_u64(vmull_high_u32(x, vcombine_u32(m, m)));
        *high = vuzp2q_u32(a, b);
        return vuzp1q_u32(a, b);
    };
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        x1[n] = vdupq_n_u32(row);
        x2[n] = vdupq_n_u32(block);
        x3[n] = vdupq_n_u32(last);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const uint32x4_t q0 = vdupq_n_u32(k0), q1 = vdupq_n_u32(k1);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            uint32x4_t high0, high1;
            const uint32x4_t low0 = product(x0[n], m0, &high0), low1 = product(x2[n], m1, &high1);
            x0[n] = veorq_u32(veorq_u32(high1, x1[n]), q0);
            x2[n] = veorq_u32(veorq_u32(high0, x3[n]), q1);
            x1[n] = low1;
            x3[n] = low0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        w[n][0] = x0[n];
        w[n][1] = x1[n];
        w[n][2] = x2[n];
        w[n][3] = x3[n];
    }
}
#endif

INL C64::VU lanes64(uint32_t first, uint32_t stride) {
    C64::VU v;
    for (int i = 0; i < C64::L; ++i) v[i] = (uint32_t)(first + stride * (uint32_t)i);
    return v;
}

// Four words for each of ROWS rows and each column col0 .. of NVEC vectors of carrier C, in 32-bit (C32) or 64-bit (C64) lanes;
// rows `stride` vectors apart in `out`. Rows share the upper half of their 64-bit numbers. Of the first two rounds only products of columns are vectors, and these are
// the same for all rows.
template <class C, int NVEC, int ROWS> INL void philox_rows(uint64_t seed, uint64_t row, uint32_t col0, uint32_t block, int site,
                                                            typename C::VU* out, int stride) {
    typedef C64::VU VU;
    constexpr bool WIDE = sizeof(typename C::T) == 8;
    constexpr int N = WIDE ? NVEC : 2 * NVEC;  // of narrow ones, even and odd columns apart
    const uint32_t last = (uint32_t)site | ((uint32_t)(row >> 32) << 8), k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#if ISA_NEON
    if constexpr (!WIDE) {
        static const uint32_t places[4] = {0, 1, 2, 3};
        for (int i = 0; i < ROWS; ++i) {
            uint32x4_t x[NVEC], w[NVEC][4];
            for (int j = 0; j < NVEC; ++j) x[j] = vaddq_u32(vdupq_n_u32(col0 + (uint32_t)(j * C32::L)), vld1q_u32(places));
            philox_words<NVEC>(x, (uint32_t)(row + i), block, last, seed, w);
            memcpy(out + i * stride, w, sizeof w);
        }
        return;
    }
#endif
    VU of_column[N], next[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        const VU column = WIDE ? lanes64(col0 + n * C64::L, 1) : lanes64(col0 + n / 2 * C32::L + n % 2, 2);
        of_column[n] = mul32(splat_u<C64>(PHILOX_M0), column);
        next[n] = mul32(splat_u<C64>(PHILOX_M1), (of_column[n] >> 32) ^ splat_u<C64>(last ^ k1));
    }
    const uint64_t of_block = (uint64_t)PHILOX_M1 * block;
#pragma GCC unroll 1
    for (int i = 0; i < ROWS; ++i) {
        const uint64_t of_row = (uint64_t)PHILOX_M0 * ((uint32_t)(of_block >> 32) ^ (uint32_t)(row + i) ^ k0);
        const VU q0 = splat_u<C64>((uint32_t)of_block ^ (k0 + PHILOX_W0));
        const VU q1 = splat_u<C64>((uint32_t)(of_row >> 32) ^ (k1 + PHILOX_W1));
        Counters<N> c;
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            c.x0[n] = (next[n] >> 32) ^ q0;
            c.x1[n] = next[n];
            c.x2[n] = of_column[n] ^ q1;
            c.x3[n] = splat_u<C64>((uint32_t)of_row);
        }
        c.template rounds<2>(seed);
        auto put = [&](int word, const VU(&x)[N]) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int j = 0; j < NVEC; ++j) {
                const VU low = x[WIDE ? j : 2 * j] & 0xFFFFFFFFu;
                out[i * stride + 4 * j + word] = (typename C::VU)(WIDE ? low : low | (x[WIDE ? j : 2 * j + 1] << 32));
            }
        };
        put(0, c.x0);
        put(1, c.x1);
        put(2, c.x2);
        put(3, c.x3);
    }
}

}  // namespace gemmsim::NS
