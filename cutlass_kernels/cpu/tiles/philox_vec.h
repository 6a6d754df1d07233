// Philox for a row of output columns: the vector form of include/gemmsim/philox.h.
// 64-bit lanes hold 32-bit words, because the 32x32 -> 64 multiplier reads only the low half of a lane: whatever
// stands in the high half is garbage until the words are read out.
#pragma once
#include "vec.h"
#include "gemmsim/philox.h"

namespace gemmsim::NS {

#define INL_MEMBER inline __attribute__((always_inline))

template <int N> INL void philox_lanes(C64::VU (&x0)[N], uint32_t row, uint32_t block, uint32_t last, uint64_t seed, C64::VU (&w)[N][4]) {
    typedef C64::VU VU;
    VU x1[N], x2[N], x3[N];
    const VU m0 = splat_u<C64>(PHILOX_M0), m1 = splat_u<C64>(PHILOX_M1);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        x1[n] = splat_u<C64>(row);
        x2[n] = splat_u<C64>(block);
        x3[n] = splat_u<C64>(last);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const VU q0 = splat_u<C64>(k0), q1 = splat_u<C64>(k1);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            const VU p0 = mul32(m0, x0[n]), p1 = mul32(m1, x2[n]);
            x0[n] = (p1 >> 32) ^ x1[n] ^ q0;
            x2[n] = (p0 >> 32) ^ x3[n] ^ q1;
            x1[n] = p1;
            x3[n] = p0;
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

// Four words for each column col0 .. of NV vectors of carrier C, in 32-bit (C32) or 64-bit (C64) lanes.
template <class C, int NVEC> INL void philox_columns(uint64_t seed, uint64_t row, uint32_t col0, uint32_t block, int site,
                                                     typename C::VU (&out)[NVEC][4]) {
    typedef C64::VU VU;
    const uint32_t last = (uint32_t)site | ((uint32_t)(row >> 32) << 8);
    if (sizeof(typename C::T) == 8) {
        VU x0[NVEC], w[NVEC][4];
        for (int j = 0; j < NVEC; ++j) x0[j] = lanes64(col0 + j * C64::L, 1);
        philox_lanes<NVEC>(x0, (uint32_t)row, block, last, seed, w);
        for (int j = 0; j < NVEC; ++j)
            for (int i = 0; i < 4; ++i) out[j][i] = (typename C::VU)(w[j][i] & 0xFFFFFFFFu);
    } else {
#if ISA_NEON
        static const uint32_t steps[4] = {0, 1, 2, 3};
        uint32x4_t x0[NVEC], w[NVEC][4];
        for (int j = 0; j < NVEC; ++j) x0[j] = vaddq_u32(vdupq_n_u32(col0 + (uint32_t)(j * C32::L)), vld1q_u32(steps));
        philox_words<NVEC>(x0, (uint32_t)row, block, last, seed, w);
        for (int j = 0; j < NVEC; ++j)
            for (int i = 0; i < 4; ++i) out[j][i] = (typename C::VU)w[j][i];
#else
        // even and odd columns apart, merged into neighbouring 32-bit lanes
        VU x0[2 * NVEC], w[2 * NVEC][4];
        for (int j = 0; j < NVEC; ++j) {
            x0[2 * j] = lanes64(col0 + j * C32::L, 2);
            x0[2 * j + 1] = lanes64(col0 + j * C32::L + 1, 2);
        }
        philox_lanes<2 * NVEC>(x0, (uint32_t)row, block, last, seed, w);
        for (int j = 0; j < NVEC; ++j)
            for (int i = 0; i < 4; ++i) out[j][i] = (typename C::VU)((w[2 * j][i] & 0xFFFFFFFFu) | (w[2 * j + 1][i] << 32));
#endif
    }
}

}  // namespace gemmsim::NS
