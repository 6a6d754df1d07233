// Computes tiles of 128 x 128 outputs by block-scaled instructions of a warp (sm_120a), from codes and scales as stored.
#pragma once
#include <cute/tensor.hpp>
#include <cute/arch/mma_sm120.hpp>
#include "mx/block_scaled_config.h"

namespace gemmsim {

// The element type by which CUTLASS names a format.
template <MxFormat F> struct ScaledElement {
    typedef typename cute::conditional<
        F.bits == 4, cute::float_e2m1_t,
        typename cute::conditional<F.bits == 6, typename cute::conditional<F.trailing == 2, cute::float_e3m2_t, cute::float_e2m3_t>::type,
                                   typename cute::conditional<F.trailing == 2, cute::float_e5m2_t, cute::float_e4m3_t>::type>::type>::type
        type;
};

// Instruction kinds mxf8f6f4 (one code per byte, 32 terms) and mxf4nvf4 (two codes per byte, 64 terms). A step takes 32 bytes of
// each line.
template <TensorConfig K> struct ScaledGemm {
    static constexpr bool PAIRS = K.packing_a == Packing::LOW_FIRST;
    static constexpr int STEP = PAIRS ? 64 : 32, LINE = 32, PITCH = 48, SCALES = STEP / K.a.block;
    static_assert(K.packing_a == K.packing_b && K.a.block == K.b.block && K.a.powers == K.b.powers);
    static_assert(PAIRS ? (K.a.powers ? K.a.block == 32 : K.a.block == 16) : K.a.powers && K.a.block == 32);
    static constexpr unsigned SHARED_BYTES = 2 * 2 * TENSOR_M * PITCH;
    typedef typename cute::conditional<
        PAIRS,
        cute::SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<
            cute::float_e2m1_t, cute::float_e2m1_t, float,
            typename cute::conditional<K.a.powers != 0, cute::float_ue8m0_t, cute::float_ue4m3_t>::type, PAIRS ? K.a.block : 16>,
        cute::SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<typename ScaledElement<K.a>::type, typename ScaledElement<K.b>::type, float,
                                                      cute::float_ue8m0_t, PAIRS ? 32 : K.a.block>>::type Atom;
    typedef typename cute::remove_extent<typename Atom::SFARegisters>::type ScaleWord;

    const TensorArgs& g;
    int64_t row0, col0;
    int tid;
    uint32_t held[2][4];  // 16 bytes of a line of each operand

    static GEMMSIM_HD uint8_t* buffer(int stage, int operand) { return shared_memory() + (stage * 2 + operand) * TENSOR_M * PITCH; }

    // The instruction expects codes of four bits in the middle of their byte.
    template <MxFormat F> static GEMMSIM_HD uint32_t placed(uint32_t word) { return !PAIRS && F.bits == 4 ? word << 2 : word; }

    template <MxFormat F> static GEMMSIM_HD void fetch_line(uint32_t (&to)[4], const uint8_t* line, int64_t first, int64_t bytes,
                                                            bool exists) {
        if (exists && first + 16 <= bytes) {
            const MxPack<uint32_t, 4> all = *(const MxPack<uint32_t, 4>*)(line + first);
            GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) to[i] = placed<F>(all.word[i]);
            return;
        }
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            uint32_t word = 0;
            GEMMSIM_UNROLL for (int b = 0; b < 4; ++b) if (exists && first + 4 * i + b < bytes) word |= (uint32_t)line[first + 4 * i + b]
                                                                                                        << (8 * b);
            to[i] = placed<F>(word);
        }
    }
    GEMMSIM_HD void fetch(int64_t step) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2, at = step * LINE + tid % 2 * 16, bytes = PAIRS ? (g.k + 1) / 2 : g.k;
        fetch_line<K.a>(held[0], g.a + row * g.a_row, at, bytes, row < g.m);
        fetch_line<K.b>(held[1], g.b + col * g.b_row, at, bytes, col < g.n);
    }
    GEMMSIM_HD void store(int stage) const {
        GEMMSIM_UNROLL for (int o = 0; o < 2; ++o) GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) *
            (uint32_t*)(buffer(stage, o) + tid / 2 * PITCH + tid % 2 * 16 + 4 * i) = held[o][i];
    }
    // The scales of a line's blocks in this step, the first in the low byte. Beyond the line's end the code is 0 and the elements
    // are zeros.
    static GEMMSIM_HD ScaleWord scales(const uint8_t* line, int64_t step, int64_t count, bool exists) {
        uint32_t word = 0;
        GEMMSIM_UNROLL for (int i = 0; i < SCALES; ++i) if (exists && step * SCALES + i < count) word |= (uint32_t)line[step * SCALES + i]
                                                                                                         << (8 * i);
        return (ScaleWord)word;
    }

    // Eight warps compute 32 x 64 outputs each, four along the rows and two along the columns: 2 x 8 instructions per step.
    GEMMSIM_HD void run() {
        const int lane = tid % 32, warp = tid / 32, quad = lane % 4, line = lane / 4, down = warp % 4 * 32, across = warp / 4 * 64;
        const int64_t steps = (g.k + STEP - 1) / STEP, count = (g.k + K.a.block - 1) / K.a.block;
        float acc[2][8][4] = {};
        fetch(0);
        store(0);
        __syncthreads();
        for (int64_t step = 0; step < steps; ++step) {
            const int stage = (int)step & 1;
            if (step + 1 < steps) fetch(step + 1);
            uint32_t a[2][4], b[8][2];
            ScaleWord scale_a[2], scale_b[8];
            CUTE_UNROLL
            for (int i = 0; i < 2; ++i) {
                CUTE_UNROLL
                for (int r = 0; r < 4; ++r)
                    a[i][r] = *(const uint32_t*)(buffer(stage, 0) + (down + 16 * i + line + r % 2 * 8) * PITCH + quad * 4 + r / 2 * 16);
                const int64_t row = row0 + down + 16 * i + lane % 2 * 8 + line;
                scale_a[i] = scales(g.scale_a + row * g.scale_a_row, step, count, row < g.m);
            }
            CUTE_UNROLL
            for (int j = 0; j < 8; ++j) {
                CUTE_UNROLL
                for (int r = 0; r < 2; ++r)
                    b[j][r] = *(const uint32_t*)(buffer(stage, 1) + (across + 8 * j + line) * PITCH + quad * 4 + r * 16);
                const int64_t col = col0 + across + 8 * j + line;
                scale_b[j] = scales(g.scale_b + col * g.scale_b_row, step, count, col < g.n);
            }
            CUTE_UNROLL
            for (int i = 0; i < 2; ++i) {
                CUTE_UNROLL
                for (int j = 0; j < 8; ++j) {
                    float (&c)[4] = acc[i][j];
                    Atom::fma(c[0], c[1], c[2], c[3], a[i][0], a[i][1], a[i][2], a[i][3], b[j][0], b[j][1], c[0], c[1], c[2], c[3],
                              scale_a[i], scale_b[j]);
                }
            }
            if (step + 1 < steps) store(stage ^ 1);
            __syncthreads();
        }
        CUTE_UNROLL
        for (int i = 0; i < 2; ++i) {
            CUTE_UNROLL
            for (int j = 0; j < 8; ++j) {
                CUTE_UNROLL
                for (int r = 0; r < 4; ++r)
                    save(row0 + down + 16 * i + line + r / 2 * 8, col0 + across + 8 * j + quad * 2 + r % 2, acc[i][j][r]);
            }
        }
    }

    GEMMSIM_HD void save(int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        ((typename Storage<K.out>::Word*)g.out)[row * g.out_row + col] = store_value<K.out>(with_tensor_scales<K>(y, g));
    }
};

// Block (x, y) of a grid of tiles.
template <TensorConfig K> GEMMSIM_HD void tensor_body(const TensorArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    ScaledGemm<K> gemm{g, (int64_t)x * TENSOR_M, (int64_t)y * TENSOR_N, (int)tid};
    gemm.run();
}

}  // namespace gemmsim
