// Tiles below one another in one call (MultiTile::TRUNCATE): registers whose sums are rounded by an addition to their bits and a mask,
// normal and small sums alike. `truncates` in product/kernel_choice.h says when they are chosen.
//
// Values are multiplied by the power of two that makes 2^emin the least normal float (Rescaling). Below 2^emin the last place of floats is
// then 2^-149, and that of the format is 2^(-126 - p + 1). So as many bits are discarded there as in the last binade above. The addition
// and the mask of normal numbers round the format's subnormals as well, a carry from these to those included. Sums need no check, except
// that sums to nearest even are checked for midpoints (rescaled_nearest.h). The signs of zeros are those of the hardware.
//
// Small sums are right, but processors may take a hundred cycles for each. They set the flag of denormal operands or of underflow. The
// flags are read after a number of terms. Where one is set, the sums that are small at that moment are counted. Where these are too many,
// other kernels are faster for what follows. For the flags, operations round by the processor's mode: an instruction with an embedded
// direction sets none.
#pragma once
#include "tiles/stochastic/stochastic.h"
#include "tiles/rescaled_tile.h"
#include "tiles/nearest/underflow_flags.h"
#include "tiles/nearest/rescaled_nearest.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

// How many vectors of a tile had a subnormal number in the last step. It counts subnormal sums after the step, and sums that are subnormal
// before their rounding, which may make zeros of them. For the latter it adds the last term once more.
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

template <int MODE, int ROWS> static __attribute__((noinline)) void rows_rescaled(const Tile& t, int row) {
    RescaledRows<MODE, ROWS> rows(t, row);
    rows.get();
    rows.terms(t.k);
    rows.put();
}

template <int MODE> struct TruncateInMode {
    static constexpr RoundingState::Direction DIRECTION = mode_of(MODE);
    static constexpr int ROWS = ISA_DIRECTED ? 8 : 4;
    const Tile& t;
    explicit TruncateInMode(const Tile& tile) : t(tile) {}
    bool run() const {
        for (int row = 0; row < (int)MR; row += ROWS) rows_rescaled<MODE, ROWS>(t, row);
        return true;
    }
};

template <bool WIDE_BITS> struct TruncateStochastic {
    static constexpr RoundingState::Direction DIRECTION = RoundingState::TO_ZERO;
    Stochastic<FMA_NEAR, WIDE_BITS, false, true> kernel;  // under the mode, nearest operations round toward zero
    explicit TruncateStochastic(const Tile& tile) : kernel(tile) {}
    bool run() {
        kernel.all();
        return true;
    }
};

// Terms before a read of the flags, and before the first one. A read waits for all sums.
constexpr int64_t RESCALED_TERMS = MidpointTerms::MOST, FIRST_CHECK = 16;
// Small vectors are counted in one of SAMPLE tiles. They are too many if they are at least MANY_SMALL, and more than one in SMALL_TILES
// tiles that were checked.
constexpr int SAMPLE = 4;
constexpr int64_t MANY_SMALL = 3 * SAMPLE, SMALL_TILES = 16;

// Tiles below one another. All tiles take some terms before any takes the next ones. These terms of the panel of B are rescaled here, and
// stay in the first-level cache.
template <class Kernel> struct RescaledTiles {
    static constexpr int64_t SIZE = MR * NV * C32::L;
    const Tile& whole;
    MultiTile& how;
    Tile t;  // the tile and the terms that the kernel computes
    const gemmsim::Cast add;
    Kernel kernel;
    int64_t at = 0;  // the first of these terms
    alignas(64) float b[RESCALED_TERMS * NV * C32::L];
    RescaledTiles(const Tile& tile, MultiTile& multi_tile)
        : whole(tile), how(multi_tile), t(tile), add(rescaled(*tile.add, how.rescaling.a + how.rescaling.b)), kernel(with_add()) {}
    const Tile& with_add() {
        t.add = &add;
        t.b = b;
        return t;
    }

    const Tile& tile(int q) {
        t.a = (const float*)whole.a + (q * whole.k + at) * MR;
        t.c = (float*)whole.c + q * SIZE;
        t.k0 = whole.k0 + at;
        t.row0 = whole.row0 + (uint64_t)(q * MR);
        if (whole.low_a) t.low_a = whole.low_a + q * whole.k + at, t.low_b = whole.low_b + at;
        return t;
    }
    // Returns false where sums are small or on midpoints too often.
    bool run() {
        const RoundingState state(Kernel::DIRECTION);
        const C32::V factor = splat<C32>(Const<C32>::power(how.rescaling.b));
        for (; at < whole.k; at += t.k) {
            const int64_t left = whole.k - at, most = how.checks ? RESCALED_TERMS : FIRST_CHECK;
            t.k = left < most ? left : most;
            const float* const from = (const float*)whole.b + at * NV * C32::L;
            for (int64_t i = 0; i < t.k * NV * C32::L; i += C32::L) store(b + i, load<C32::V>(from + i) * factor);
            for (int q = 0; q < how.tiles; ++q) {
                tile(q);
                if (!kernel.run()) return false;
            }
            if (!check()) return false;
        }
        return true;
    }
    bool check() {
        how.checks += how.tiles;
        if (!SmallSums::seen()) return true;
        const int each = how.tiles < SAMPLE ? how.tiles : SAMPLE;
        for (int q = 0; q < how.tiles; q += each) how.small += each * small_vectors(tile(q));
        SmallSums::clear(Kernel::DIRECTION);
        return how.small < MANY_SMALL || how.small * SMALL_TILES <= how.checks;
    }
};

template <class Kernel> static bool tiles_rescaled(const Tile& t, MultiTile& how) {
    if (!RescaledTiles<Kernel>(t, how).run()) return false;
    const int by = -how.rescaling.a - how.rescaling.b;
    if (by) times((float*)t.c, how.tiles * RescaledTiles<Kernel>::SIZE, splat<C32>(Const<C32>::power(by)));
    return true;
}

// The entry point: kinds NORMAL and SUBNORMALS to nearest even, and kind DIRECTED in other modes.
static bool truncated_multi_tile(const Tile& t, MultiTile& how) {
    switch (t.add->mode) {
        case RNE: return tiles_rescaled<TruncateNearest>(t, how);
        case RNA: return tiles_rescaled<TruncateInMode<RNA>>(t, how);
        case SR:
            return has_wide_random_bits(*t.add) ? tiles_rescaled<TruncateStochastic<true>>(t, how)
                                                : tiles_rescaled<TruncateStochastic<false>>(t, how);
        case RU: return tiles_rescaled<TruncateInMode<RU>>(t, how);
        case RD: return tiles_rescaled<TruncateInMode<RD>>(t, how);
        default: return tiles_rescaled<TruncateInMode<RTZ>>(t, how);
    }
}

}  // namespace gemmsim::NS
#endif
