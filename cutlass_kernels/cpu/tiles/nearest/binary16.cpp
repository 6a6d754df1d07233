// Registers of binary16 whose every step is the processor's own fused multiply-add (AVX512-FP16). A vector has 32 sums. Each is rounded
// once, with the subnormals, infinities and signs of zeros of the format. The instruction ignores the processor's flushing modes, and
// numbers below 2^-14 take no longer than others.
//
// Panels of A are packed once for a block; each number is stored twice in the place of its float. Panels of B are converted some terms at
// a time, which stay in the first-level cache while all tiles use them.
#include "tiles/nearest/binary16.h"

#if defined(__AVX512FP16__)
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

namespace gemmsim {
namespace {

constexpr int L = 32, FLOATS = 16;  // numbers and floats of a vector; a panel of B has L columns
constexpr int64_t TERMS = 128;      // terms of B that are converted at a time

void pack(float* x, int64_t n) {
    for (int64_t i = 0; i < n; i += FLOATS) {
        const __m512i lane = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        _mm512_storeu_si512(x + i, _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16)));
    }
}

template <int MODE> inline __attribute__((always_inline)) __m512h step(__m512h a, __m512h b, __m512h s) {
    if (MODE == RTZ) return _mm512_fmadd_round_ph(a, b, s, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    if (MODE == RU) return _mm512_fmadd_round_ph(a, b, s, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return _mm512_fmadd_ph(a, b, s);
}

// Adds k terms to a tile's sums. `a` has the floats of a packed panel, and `b` has rows of PANELS vectors.
template <int MODE, int PANELS> __attribute__((noinline)) void rows(const float* a, const uint16_t* b, uint16_t* c, int64_t k) {
    __m512h s[MR][PANELS];
#pragma GCC unroll 8
    for (int i = 0; i < (int)MR; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < PANELS; ++j) s[i][j] = _mm512_loadu_ph(c + (i * PANELS + j) * L);
    for (; k > 0; --k, a += MR, b += PANELS * L) {
        __m512h right[PANELS];
#pragma GCC unroll 2
        for (int j = 0; j < PANELS; ++j) right[j] = _mm512_loadu_ph(b + j * L);
#pragma GCC unroll 8
        for (int i = 0; i < (int)MR; ++i) {
            const __m512h left = _mm512_castps_ph(_mm512_set1_ps(a[i]));
#pragma GCC unroll 2
            for (int j = 0; j < PANELS; ++j) s[i][j] = step<MODE>(left, right[j], s[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < (int)MR; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < PANELS; ++j) _mm512_storeu_ph(c + (i * PANELS + j) * L, s[i][j]);
}

template <int MODE, int PANELS> void tiles_of(const Tile& t, int tiles) {
    constexpr int64_t SIZE = MR * PANELS * L;  // elements of a tile
    alignas(64) uint16_t b[TERMS * PANELS * L], c[MultiTile::MOST_TILES[MultiTile::FP16] * SIZE];
    memset(c, 0, sizeof c[0] * (size_t)(tiles * SIZE));
    for (int64_t k = 0; k < t.k; k += TERMS) {
        const int64_t n = t.k - k < TERMS ? t.k - k : TERMS;
        for (int64_t i = 0; i < n; ++i)
            for (int j = 0; j < PANELS; ++j) {
                const float* const from = (const float*)t.b + (j * t.k + k + i) * L;
                uint16_t* const to = b + (i * PANELS + j) * L;
                for (int h = 0; h < L; h += FLOATS)
                    _mm256_store_si256((__m256i*)(to + h),
                                       _mm512_cvtps_ph(_mm512_loadu_ps(from + h), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
            }
        for (int q = 0; q < tiles; ++q) rows<MODE, PANELS>((const float*)t.a + (q * t.k + k) * MR, b, c + q * SIZE, n);
    }
    for (int64_t i = 0; i < tiles * SIZE; i += FLOATS)
        _mm512_storeu_ps((float*)t.c + i, _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)(c + i))));
}

template <int MODE> void tiles_in(const Tile& t, const MultiTile& how) {
    return how.panels == 1 ? tiles_of<MODE, 1>(t, how.tiles) : tiles_of<MODE, 2>(t, how.tiles);
}

void tiles(const Tile& t, const MultiTile& how) {
    switch (t.add->mode) {
        case RTZ: return tiles_in<RTZ>(t, how);
        case RU: return tiles_in<RU>(t, how);
        default: return tiles_in<RNE>(t, how);
    }
}

// A bit of CPUID leaf 7 reports AVX512-FP16. The state that the operating system must save is that of AVX-512.
bool has_binary16() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}

}  // namespace

const Binary16* binary16_avx512() {
    static const Binary16 functions = {pack, tiles};
    static const bool here = has_binary16();
    return here ? &functions : nullptr;
}

}  // namespace gemmsim
#else
namespace gemmsim {
const Binary16* binary16_avx512() { return nullptr; }
}  // namespace gemmsim
#endif
