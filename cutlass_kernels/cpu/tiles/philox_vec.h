// Philox4x32-10 for output columns: the vector form of include/gemmsim/philox.h.
#pragma once
#include <type_traits>
#include "vec.h"
#include "gemmsim/philox.h"

namespace gemmsim::NS {

// There are two layouts of the counters' words. Both give the lower and the upper words of products with a constant.
//
// WideWords: a word is in a 64-bit lane. The 32x32 -> 64 multiplier reads the low half alone. So the high half may contain anything until
// words are read out, and the product itself serves as the lower word.
struct WideWords {
    typedef C64::VU VU;
    enum { L = C64::L };
#if ISA_AVX512
    static INL_MEMBER VU upper(VU x) { return (VU)_mm512_shuffle_epi32((__m512i)x, _MM_PERM_DDBB); }
#else
    static INL_MEMBER VU upper(VU x) { return x >> 32; }
#endif
    static INL_MEMBER VU product(VU x, VU m, VU* high) {
        const VU p = mul32(m, x);
        *high = upper(p);
        return p;
    }
    static INL_MEMBER VU in_order(VU x) { return x; }
    static INL_MEMBER int place(int lane) { return lane; }
};

#if ISA_AVX2 || ISA_NEON
#define NARROW_WORDS 1
// NarrowWords: a word is in a 32-bit lane. On AVX2 the selection of upper words exchanges the middle two of each four lanes. So the words
// that are multiplied are in order in every other round. The words that are added are lower words of the round before, and are in order in
// the rounds between.
struct NarrowWords {
    typedef C32::VU VU;
    enum { L = C32::L };
#if ISA_AVX2
    static INL_MEMBER VU product(VU x, VU m, VU* high) {
        const __m256 even = (__m256)mul32((C64::VU)x, (C64::VU)m), odd = (__m256)mul32((C64::VU)x >> 32, (C64::VU)m);
        *high = (VU)_mm256_shuffle_ps(even, odd, 0xDD);
        return x * m;
    }
    static INL_MEMBER VU in_order(VU x) { return (VU)_mm256_shuffle_epi32((__m256i)x, 0xD8); }
    static INL_MEMBER int place(int lane) { return lane % 4 == 1 ? lane + 1 : lane % 4 == 2 ? lane - 1 : lane; }
#else
    static INL_MEMBER VU product(VU x, VU m, VU* high) {
        const uint32x4_t n = (uint32x4_t)x, f = (uint32x4_t)m;
        const uint32x4_t a = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(n), vget_low_u32(f))),
                         b = vreinterpretq_u32_u64(vmull_high_u32(n, f));
        *high = (VU)vuzp2q_u32(a, b);
        return (VU)vuzp1q_u32(a, b);
    }
    static INL_MEMBER VU in_order(VU x) { return x; }
    static INL_MEMBER int place(int lane) { return lane; }
#endif
};
#else
#define NARROW_WORDS 0
#endif

// The keys of all rounds, in all lanes of 32 bits.
struct RoundKeys {
    C32::VU of[10][2];
    INL_MEMBER RoundKeys() {}
    explicit INL_MEMBER RoundKeys(uint64_t seed) {
        for (uint32_t round = 0; round < 10; ++round) {
            of[round][0] = splat_u<C32>((uint32_t)seed + round * PHILOX_W0);
            of[round][1] = splat_u<C32>((uint32_t)(seed >> 32) + round * PHILOX_W1);
        }
    }
};

// The counters of N vectors of lanes.
template <class W, int N> struct Counters {
    typedef typename W::VU VU;
    VU x0[N], x1[N], x2[N], x3[N];

    // Computes the rounds from FROM on.
    template <int FROM> INL_MEMBER void rounds(const RoundKeys& keys) {
        const VU m0 = (VU)splat_u<C32>(PHILOX_M0), m1 = (VU)splat_u<C32>(PHILOX_M1);
#pragma GCC unroll 10
        for (int round = FROM; round < 10; ++round) {
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) {
                VU high0, high1;
                const VU low0 = W::product(x0[n], m0, &high0), low1 = W::product(x2[n], m1, &high1);
                x0[n] = high1 ^ x1[n] ^ (VU)keys.of[round][0];
                x2[n] = high0 ^ x3[n] ^ (VU)keys.of[round][1];
                x1[n] = low1;
                x3[n] = low0;
            }
        }
    }
};

template <int N> INL void philox_lanes(C64::VU (&x0)[N], uint32_t row, uint32_t block, uint32_t last, uint64_t seed, C64::VU (&w)[N][4]) {
    Counters<WideWords, N> c;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        c.x0[n] = x0[n];
        c.x1[n] = splat_u<C64>(row);
        c.x2[n] = splat_u<C64>(block);
        c.x3[n] = splat_u<C64>(last);
    }
    c.template rounds<0>(RoundKeys(seed));
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
        w[n][0] = c.x0[n];
        w[n][1] = c.x1[n];
        w[n][2] = c.x2[n];
        w[n][3] = c.x3[n];
    }
}

INL C64::VU lanes64(uint32_t first, uint32_t stride) {
    C64::VU v;
    for (int i = 0; i < C64::L; ++i) v[i] = (uint32_t)(first + stride * (uint32_t)i);
    return v;
}

// Computes four words for each of some rows and for each column of NVEC vectors of carrier C, from column col0 on. They are in 32-bit (C32)
// or 64-bit (C64) lanes. The rows share the upper half of their 64-bit numbers; `last` contains it and the stream. make() computes once
// what the first three rounds make of the columns alone. words() computes once for all rows what these rounds make of columns and block.
template <class C, int NVEC> struct PhiloxColumns {
    static constexpr bool WIDE = sizeof(typename C::T) == 8, NARROW = NARROW_WORDS && !WIDE;
    static constexpr int N = WIDE || NARROW ? NVEC : 2 * NVEC;  // of C32 in wide lanes, even and odd columns are separate vectors
#if NARROW_WORDS
    typedef typename std::conditional<WIDE, WideWords, NarrowWords>::type W;
#else
    typedef WideWords W;
#endif
    typedef typename W::VU VU;
    RoundKeys keys;
    VU of_column[N], added[N], crossed[N];
    uint32_t k0, k1, col0, last;
    bool made = false;

    INL_MEMBER void make(uint64_t seed, uint32_t column0, uint32_t last_word) {
        if (made && k0 == (uint32_t)seed && k1 == (uint32_t)(seed >> 32) && col0 == column0 && last == last_word) return;
        keys = RoundKeys(seed);
        k0 = (uint32_t)seed;
        k1 = (uint32_t)(seed >> 32);
        col0 = column0;
        last = last_word;
        made = true;
        const VU m0 = (VU)splat_u<C32>(PHILOX_M0), m1 = (VU)splat_u<C32>(PHILOX_M1), second = (VU)splat_u<C32>(last ^ k1);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            VU column = {};
            const int first = WIDE || NARROW ? n * W::L : n / 2 * C32::L + n % 2, stride = WIDE || NARROW ? 1 : 2;
            for (int i = 0; i < W::L; ++i) column[i] = col0 + (uint32_t)(first + stride * W::place(i));
            VU high;
            of_column[n] = W::product(column, m0, &high);
            added[n] = W::product(high ^ second, m1, &crossed[n]) ^ (VU)keys.of[2][0];
        }
    }

    // `stride` is the number of vectors of `out` from one row to the next.
    INL_MEMBER void words(uint64_t row, uint32_t block, typename C::VU* out, int stride, int rows) const {
        const VU m0 = (VU)splat_u<C32>(PHILOX_M0), m1 = (VU)splat_u<C32>(PHILOX_M1);
        const uint64_t of_block = (uint64_t)PHILOX_M1 * block;
        const VU of_all = (VU)splat_u<C32>((uint32_t)of_block ^ (k0 + PHILOX_W0));
        VU high[N], low[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) low[n] = W::product(crossed[n] ^ of_all, m0, &high[n]);
#pragma GCC unroll 1
        for (int i = 0; i < rows; ++i) {
            const uint64_t of_row = (uint64_t)PHILOX_M0 * ((uint32_t)(of_block >> 32) ^ (uint32_t)(row + i) ^ k0);
            const VU first = (VU)splat_u<C32>((uint32_t)(of_row >> 32) ^ (k1 + PHILOX_W1)),
                     second = (VU)splat_u<C32>((uint32_t)of_row ^ (k1 + 2 * PHILOX_W1));
            Counters<W, N> c;
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) {
                c.x1[n] = W::product(of_column[n] ^ first, m1, &c.x0[n]);
                c.x0[n] ^= added[n];
                c.x2[n] = high[n] ^ second;
                c.x3[n] = low[n];
            }
            c.template rounds<3>(keys);
#pragma GCC unroll 8
            for (int j = 0; j < NVEC; ++j) {
                typename C::VU* const to = out + i * stride + 4 * j;
                to[0] = put(c.x0, j, true);
                to[1] = put(c.x1, j, false);
                to[2] = put(c.x2, j, true);
                to[3] = put(c.x3, j, false);
            }
        }
    }

private:
    static INL_MEMBER typename C::VU put(const VU (&x)[N], int j, bool multiplied) {
        if constexpr (NARROW) return multiplied ? W::in_order(x[j]) : x[j];
        else if constexpr (WIDE) return x[j] & 0xFFFFFFFFu;
#if ISA_AVX512
        else return (C32::VU)_mm512_mask_shuffle_epi32((__m512i)x[2 * j], 0xAAAA, (__m512i)x[2 * j + 1], _MM_PERM_CCAA);
#else
        else return (C32::VU)((x[2 * j] & 0xFFFFFFFFu) | (x[2 * j + 1] << 32));
#endif
    }
};

}  // namespace gemmsim::NS
