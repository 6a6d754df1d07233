// Tiles below one another of registers whose sums are rounded by an addition to their bits and a mask, wherever they lie.
//
// Values are multiplied by that power of two for which 2^emin is the least normal float (Sink). Below it the last place of floats is
// 2^-149 and that of the format is 2^(-126 - p + 1), so that the same bits go as from the last binade above: among the format's
// subnormals the addition and the mask are those of its normal numbers, a carry between both included. Nothing is looked at but, of sums
// to nearest even, whether one is on a midpoint (cut_sums.h). Signs of zeros are the machine's own.
//
// Small sums are right, but processors may take a hundred cycles for each. They set the flags of denormal operands or underflow, which
// are looked at after a stretch of terms; where they are set, sums that are small now are counted, and where there are
// too many, other kernels are faster for what follows. So operations round as the processor's mode has it: where an instruction names its
// own direction, it sets no flags.
#pragma once
#include "tiles/carried.h"
#include "tiles/lifted.h"
#include "tiles/small_sums.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

// How many vectors of a tile's last step met a number that is neither zero nor a normal float: sums as they are, or before their rounding
// (which may make zero of them), where the last term is added once more.
static __attribute__((noinline)) int64_t small_vectors(const Tile& t) {
    const float *const a = (const float*)t.a + (t.k - 1) * MR, *const b = (const float*)t.b + (t.k - 1) * NV * C32::L;
    int64_t n = 0;
    for (int i = 0; i < (int)MR; ++i)
        for (int j = 0; j < NV; ++j) {
            const C32::V s = load<C32::V>((const float*)t.c + (i * NV + j) * C32::L),
                         x = vfma(splat<C32>(a[i]), load<C32::V>(b + j * C32::L), s);
#if ISA_AVX512
            enum { SUBNORMAL = 0x20 };
            n += (_mm512_fpclass_ps_mask((__m512)s, SUBNORMAL) | _mm512_fpclass_ps_mask((__m512)x, SUBNORMAL)) != 0;
#else
            const C32::VI of_s = (C32::VI)((C32::VU)s & ~C32::SIGN), of_x = (C32::VI)((C32::VU)x & ~C32::SIGN);
            const C32::VI one = splat_i<C32>((int32_t)C32::ONE), zero = {};
            n += !none_set(((of_s > zero) & (of_s < one)) | ((of_x > zero) & (of_x < one)));
#endif
        }
    return n;
}

// ROWS rows; RTZ and RNA, in the processor's mode toward zero.
template <int MODE, int ROWS> static __attribute__((noinline)) void rows_sunk(const Tile& t, int row) {
    typedef C32::V V;
    typedef C32::VU VU;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b;
    float* const c = (float*)t.c + row * NV * C32::L;
    const int dropped = C32::MB + 1 - t.add->p;
    const VU keep = in_register(splat_u<C32>(~0u << dropped)), half = in_register(splat_u<C32>(1u << (dropped - 1)));
    V s[ROWS][NV];
    const auto each = [&](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) f(i, j);
    };
    each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = in_register(load<V>(c + (i * NV + j) * C32::L)); });
    for (int64_t k = 0; k < t.k; ++k, a += MR, b += NV * C32::L)
        each([&](int i, int j) __attribute__((always_inline)) {
            const VU u = (VU)vfma(splat<C32>(a[i]), load<V>(b + j * C32::L), s[i][j]);
            s[i][j] = (V)((MODE == RNA ? u + half : u) & keep);
        });
    each([&](int i, int j) __attribute__((always_inline)) { store(c + (i * NV + j) * C32::L, in_register(s[i][j])); });
}

template <int MODE> struct CutToZero {
    static constexpr RoundingState::Direction DIRECTION = RoundingState::TO_ZERO;
    static constexpr int ROWS = ISA_DIRECTED ? 8 : 4;
    const Tile& t;
    explicit CutToZero(const Tile& tile) : t(tile) {}
    bool run() const {
        for (int row = 0; row < (int)MR; row += ROWS) rows_sunk<MODE, ROWS>(t, row);
        return true;
    }
};

template <bool CARRIES> struct CutAtRandom {
    static constexpr RoundingState::Direction DIRECTION = RoundingState::TO_ZERO;
    Stochastic<FMA_NEAR, CARRIES, false, true> kernel;  // the mode makes nearest operations ones toward zero
    explicit CutAtRandom(const Tile& tile) : kernel(tile) {}
    bool run() {
        kernel.all();
        return true;
    }
};

#if ISA_AVX512
// Nearest even: sums on a midpoint are done again, whose fused additions name their own directions.
struct CutNearest {
    typedef C32::V V;
    typedef C32::VU VU;
    static constexpr RoundingState::Direction DIRECTION = RoundingState::NEAREST;
    static constexpr int SELDOM = 4;  // one step in so many of a few rows may have to be done again
    const Tile& t;
    const int dropped;
    const VU keep, half;
    int64_t again = 0, all = 0;
    explicit CutNearest(const Tile& tile)
        : t(tile), dropped(C32::MB + 1 - t.add->p), keep(splat_u<C32>(~0u << dropped)), half(splat_u<C32>(1u << (dropped - 1))) {}

    INL_MEMBER V exactly(V a, V b, V s) const {
        const VU u = (VU)fma_odd<C32>(a, b, s), even = (u >> (VU)splat_u<C32>((uint32_t)dropped)) & 1;
        return (V)((VU)(u + half + even - 1) & keep);
    }
    __attribute__((noinline)) int64_t rows(int row) const {
        enum { ROWS = 4 };
        const float *a = (const float*)t.a + row, *b = (const float*)t.b;
        float* const c = (float*)t.c + row * NV * C32::L;
        const VU stays = in_register(keep), more = in_register(half), goes = in_register((VU)~keep);
        V s[ROWS][NV];
        int64_t found = 0;
        const auto each = [&](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) f(i, j);
        };
        each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = load<V>(c + (i * NV + j) * C32::L); });
        for (int64_t k = 0; k < t.k; ++k, a += MR, b += NV * C32::L) {
            V before[ROWS][NV];
            __mmask16 uneven = 0;
            each([&](int i, int j) __attribute__((always_inline)) {
                before[i][j] = s[i][j];
                const VU u = (VU)vfma(splat<C32>(a[i]), load<V>(b + j * C32::L), s[i][j]) + more;
                uneven = i + j ? _mm512_mask_test_epi32_mask(uneven, (__m512i)u, (__m512i)goes)
                               : _mm512_test_epi32_mask((__m512i)u, (__m512i)goes);
                s[i][j] = (V)(u & stays);
            });
            if (__builtin_expect(!_kortestc_mask16_u8(uneven, uneven), 0)) {
                ++found;
                each([&](int i, int j) __attribute__((always_inline)) {
                    s[i][j] = exactly(in_register(splat<C32>(a[i])), load<V>(b + j * C32::L), before[i][j]);
                });
            }
            each([&](int i, int j) __attribute__((always_inline)) { s[i][j] = in_register(s[i][j]); });
        }
        each([&](int i, int j) __attribute__((always_inline)) { store(c + (i * NV + j) * C32::L, s[i][j]); });
        return found;
    }
    bool run() {
        for (int row = 0; row < (int)MR; row += 4, all += t.k) again += rows(row);
        return again * SELDOM <= all + 2 * SELDOM;
    }
};
#endif

constexpr int64_t SUNK_TERMS = 128, FIRST_LOOK = 16;  // terms to a look at the flags, which waits for all sums
constexpr int64_t MANY_SMALL = 3, SMALL_TILES = 16;    // so many small vectors are too many, and one for so many tiles looked at

// Tiles below one another, some terms of all at a time: their panel of B is sunk here, and stays in the first-level cache.
template <class Kernel> struct SunkTiles {
    static constexpr int64_t SIZE = MR * NV * C32::L;
    const Tile& whole;
    Beside& how;
    Tile t;  // of the kernel
    const gemmsim::Cast add;
    Kernel kernel;
    alignas(64) float b[SUNK_TERMS * NV * C32::L];
    SunkTiles(const Tile& tile, Beside& beside)
        : whole(tile), how(beside), t(tile), add(lifted(*tile.add, how.sink.a + how.sink.b)), kernel(with_add()) {}
    const Tile& with_add() {
        t.add = &add;
        t.b = b;
        return t;
    }

    const Tile& tile(int q) {
        t.a = (const float*)whole.a + (q * whole.k + t.k0) * MR;
        t.c = (float*)whole.c + q * SIZE;
        t.row0 = whole.row0 + (uint64_t)(q * MR);
        return t;
    }
    // False: sums are small, or on midpoints, too often.
    bool run() {
        const RoundingState state(Kernel::DIRECTION);
        const C32::V factor = splat<C32>(Const<C32>::power(how.sink.b));
        for (t.k0 = 0; t.k0 < whole.k; t.k0 += t.k) {
            const int64_t left = whole.k - t.k0, most = how.looks ? SUNK_TERMS : FIRST_LOOK;
            t.k = left < most ? left : most;
            const float* const from = (const float*)whole.b + t.k0 * NV * C32::L;
            for (int64_t i = 0; i < t.k * NV * C32::L; i += C32::L) store(b + i, load<C32::V>(from + i) * factor);
            for (int q = 0; q < how.tiles; ++q) {
                tile(q);
                if (!kernel.run()) return false;
            }
            if (!look()) return false;
        }
        return true;
    }
    bool look() {
        how.looks += how.tiles;
        if (!SmallSums::seen()) return true;
        for (int q = 0; q < how.tiles; ++q) how.small += small_vectors(tile(q));
        SmallSums::clear(Kernel::DIRECTION);
        return how.small < MANY_SMALL || how.small * SMALL_TILES <= how.looks;
    }
};

template <class Kernel> static bool tiles_sunk(const Tile& t, Beside& how) {
    if (!SunkTiles<Kernel>(t, how).run()) return false;
    const int by = -how.sink.a - how.sink.b;
    if (by) times((float*)t.c, how.tiles * SunkTiles<Kernel>::SIZE, splat<C32>(Const<C32>::power(by)));
    return true;
}

// Kinds PLAIN and SUB to nearest even by AVX-512, and FAST.
static bool cut_beside(const Tile& t, Beside& how) {
    switch (t.add->mode) {
#if ISA_AVX512
        case RNE: return tiles_sunk<CutNearest>(t, how);
#endif
        case RNA: return tiles_sunk<CutToZero<RNA>>(t, how);
        case SR: return is_carried(*t.add) ? tiles_sunk<CutAtRandom<true>>(t, how) : tiles_sunk<CutAtRandom<false>>(t, how);
        default: return tiles_sunk<CutToZero<RTZ>>(t, how);
    }
}

}  // namespace gemmsim::NS
#endif
