// Finds the terms whose products cannot put a sum on a midpoint of the register's format. It uses the lowest set bits of the factors.
//
// The values of a register are multiples of its quantum 2^(emin - p + 1). So midpoints between neighbours are multiples of half the
// quantum.
// Lemma: let a product be no multiple of half the quantum. Then its sum with a value of the register is no such multiple either, and is on
// no midpoint, however small or large it is.
// Such a sum is rounded to nearest in three steps. It is rounded toward zero in float, half of the last place is added to its bits, and the
// bits below that place are cleared. What was lost first cannot carry a sum past a midpoint or onto one.
// For most numbers of 24 bits, some 46 places lie between the magnitude of a product and its lowest bit.
#pragma once
#include "isa_table.h"
#include "tiles/random_bits.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

constexpr uint32_t LEAST_BIT = 150;

// Gives for each number, above 23 other bits, the exponent of its lowest set bit plus 127 + LEAST_BIT. LEAST_BIT or less says that this bit
// is at most 2^-127 or that the number is zero.
INL C32::VU lowest_bit(C32::V x) {
    typedef C32::VU VU;
    const VU u = (VU)x, m = u | C32::ONE, low = m & -m;  // at most the implicit bit, which normal numbers have
    return (u & ~C32::SIGN) + (VU) __builtin_convertvector((C32::VI)low, C32::V);
}

#if ISA_AVX512
typedef __m512i Lanes;
INL __m512i larger(__m512i x, __m512i y) { return _mm512_max_epu32(x, y); }
// The maxima of the halves of two vectors (step 0), of the quarters of each half (step 1), and so on. Each vector is left with half as many
// lanes, those of x first.
INL __m512i fold_lanes(__m512i x, __m512i y, int step) {
    const __m512 p = _mm512_castsi512_ps(x), q = _mm512_castsi512_ps(y);
    switch (step) {
        case 0: return larger(_mm512_shuffle_i32x4(x, y, 0x44), _mm512_shuffle_i32x4(x, y, 0xEE));
        case 1: return larger(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xDD));
        case 2: return larger(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
        default: return larger(_mm512_castps_si512(_mm512_shuffle_ps(p, q, 0x88)), _mm512_castps_si512(_mm512_shuffle_ps(p, q, 0xDD)));
    }
}
#else
typedef __m256i Lanes;
INL __m256i larger(__m256i x, __m256i y) { return _mm256_max_epu32(x, y); }
INL __m256i fold_lanes(__m256i x, __m256i y, int step) {
    const __m256 p = _mm256_castsi256_ps(x), q = _mm256_castsi256_ps(y);
    switch (step) {
        case 1: return larger(_mm256_permute2x128_si256(x, y, 0x20), _mm256_permute2x128_si256(x, y, 0x31));
        case 2: return larger(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
        default: return larger(_mm256_castps_si256(_mm256_shuffle_ps(p, q, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(p, q, 0xDD)));
    }
}
#endif

// The next L of k terms of a panel, of TERM numbers each; without WHOLE, the k < L terms that are left.
template <int TERM, bool WHOLE> INL void lowest_bits_of_some(const float* panel, int64_t k, uint8_t* out) {
    enum { L = C32::L, VECTORS = TERM < L ? L / 2 : L, EACH = TERM < L ? 1 : TERM / L, FIRST = TERM < L || L == 8 };
    const int64_t numbers = k * TERM;
    Lanes v[VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < VECTORS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < EACH; ++j) {
            const int64_t at = (i * EACH + j) * L;
            C32::V x = {};
            if (WHOLE || at + L <= numbers) x = load<C32::V>(panel + at);
            else if (at < numbers) memcpy(&x, panel + at, (size_t)(numbers - at) * sizeof(float));
            v[i] = j ? larger(v[i], (Lanes)lowest_bit(x)) : (Lanes)lowest_bit(x);
        }
#pragma GCC unroll 4
    for (int step = FIRST, n = VECTORS / 2; n; ++step, n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; ++i) v[i] = fold_lanes(v[2 * i], v[2 * i + 1], step);
    alignas(64) uint32_t lanes[L];  // each group of 16 bytes has every fourth term (AVX-512) or every second one (AVX2)
    memcpy(lanes, &v[0], sizeof lanes);
    for (int64_t i = 0; i < L && (WHOLE || i < k); ++i) {
        const uint32_t e = lanes[i % (L / 4) * 4 + i / (L / 4)] >> C32::MB;
        out[i] = (uint8_t)(e > LEAST_BIT ? e - LEAST_BIT : 0);
    }
}

// Isa::lowest_bits of k terms of TERM numbers each: the largest exponent of a lowest set bit in each term, plus 127. 0 says that the
// largest one is 2^-127 or less, or that all numbers are zero.
template <int TERM> [[maybe_unused]] static void lowest_bits_of(const float* panel, int64_t k, uint8_t* out) {
    for (; k >= C32::L; k -= C32::L, panel += TERM * C32::L, out += C32::L) lowest_bits_of_some<TERM, true>(panel, k, out);
    if (k) lowest_bits_of_some<TERM, false>(panel, k, out);
}
// Those of at most MOST terms of a tile whose products may be multiples of half the quantum.
struct MidpointTerms {
    static constexpr int64_t MOST = 128;
    uint64_t at[MOST / 64];
    int64_t terms, count = 0;

    // A term is one of these if the sum of its two bytes (Isa::lowest_bits) is at least `limit`.
    MidpointTerms(const uint8_t* a, const uint8_t* b, int64_t k, int limit) : terms(k) {
        enum { TOGETHER = 2 * C32::L };
        for (uint64_t& word : at) word = 0;
        for (int64_t i = 0; i < k; i += TOGETHER) {
#if ISA_AVX512
            const __m512i sum = _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)(a + i))),
                                                 _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)(b + i))));
            const uint64_t found = _mm512_cmpge_epi16_mask(sum, _mm512_set1_epi16((short)limit));
#else
            const __m256i sum = _mm256_add_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)(a + i))),
                                                 _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)(b + i))));
            const __m256i more = _mm256_cmpgt_epi16(sum, _mm256_set1_epi16((short)(limit - 1)));
            const uint64_t found =
                (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(_mm256_castsi256_si128(more), _mm256_extracti128_si256(more, 1)));
#endif
            const int64_t left = k - i;
            at[i / 64] |= (left < TOGETHER ? found & ((1ull << left) - 1) : found) << (i % 64);
        }
        for (const uint64_t word : at) count += __builtin_popcountll(word);
    }
    // The first of these terms from k on, or the number of terms if there is none.
    INL_MEMBER int64_t from(int64_t k) const {
        for (int64_t i = k / 64; i < MOST / 64; ++i, k = 64 * i) {
            const uint64_t word = at[i] >> (k % 64);
            if (word) return k + __builtin_ctzll(word);
        }
        return terms;
    }
};

}  // namespace gemmsim::NS
#endif
