// Matrix products by a warp's own matrix instruction (mma.sync), in tiles of 128 x 128 outputs. Each output is one chain of
// instructions for k ascending whose register starts from +0. Shared memory has three chunks: asynchronous copies fill some while
// others are multiplied. gemmsim/backends/cuda/tensor_cores/native_mma.py selects this file for Issue::WARP; route.py says when such
// instructions take the place of their model.
#pragma once
#include "gemm/tensor_cores/native_mma_config.h"
#include "gemm/tensor_cores/warp_mma.h"

namespace gemmsim {

template <InstructionConfig K> struct InstructionGemm {
    typedef InstructionMma<K> Mma;
    static constexpr int TERMS = Mma::TERMS, COUNT = Mma::COUNT, STAGES = INSTRUCTION_STAGES;
    // The number of chunks in flight. A chunk's place is free after the next barrier, because all threads have multiplied it by then.
    static constexpr int AHEAD = STAGES - 1;
    static_assert(K.issue == Issue::WARP && instruction_terms(K.a) == instruction_terms(K.b) && K.promoted % COUNT == 0);

    const InstructionArgs& g;
    const uint8_t *a, *b;  // this thread's line of each
    bool has_a, has_b;
    int tid;

    static GEMMSIM_HD uint8_t* buffer(int stage, int operand) { return aligned_shared() + (stage * 2 + operand) * INSTRUCTION_CHUNK_BYTES; }
    // Starts the copies of a chunk. A line ends at a multiple of 16 bytes, filled up with zeros. Chunks past the end commit an empty
    // group, so that `wait` counts groups correctly.
    GEMMSIM_HD void load(int64_t chunk, int64_t chunks, int stage) const {
        if (chunk < chunks) {
            const int64_t bytes = g.k * element_bytes(K.a);
            GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
                const int64_t at = chunk * INSTRUCTION_LINE + tid % 2 * 64 + 16 * i;
                Mma::copy_bytes(buffer(stage, 0) + Mma::place(tid, i), a + at, has_a && at < bytes);
                Mma::copy_bytes(buffer(stage, 1) + Mma::place(tid, i), b + at, has_b && at < bytes);
            }
        }
        Mma::commit();
    }

    // Waits until all threads can read chunk i. Then starts the copies of chunk i + AHEAD into place `free`, which no thread reads.
    GEMMSIM_HD void follow(int64_t i, int64_t chunks, int free) const {
        Mma::template wait<AHEAD - 1>();
        block_sync();
        load(i + AHEAD, chunks, free);
    }
    // Adds the register to `total` and sets it to +0 again.
    template <int SIZE> static GEMMSIM_HD void add(typename Mma::Sums& acc, float (&total)[SIZE]) {
        GEMMSIM_UNROLL for (int i = 0; i < SIZE; ++i) total[i] = add_rn(total[i], float(acc(i)));
        Mma::clear(acc);
    }

    GEMMSIM_HD void run(int64_t batch, int64_t row0, int64_t col0) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2;
        has_a = row < g.m;
        has_b = col < g.n;
        a = g.a + batch * g.a_batch + row * g.a_row;
        b = g.b + batch * g.b_batch + col * g.b_row;
        typename Mma::Sums acc;
        float total[K.promoted ? Mma::SIZE : 1] = {};
        Mma::clear(acc);
        const int64_t instructions = (g.k + TERMS - 1) / TERMS, chunks = (instructions + COUNT - 1) / COUNT;
        const int64_t whole = instructions / COUNT;
        GEMMSIM_UNROLL for (int i = 0; i < AHEAD; ++i) load(i, chunks, i);
        int stage = 0, free = AHEAD;
        GEMMSIM_NO_UNROLL for (int64_t i = 0; i < whole; ++i) {
            follow(i, chunks, free);
            Mma::template multiply<true>(buffer(stage, 0), buffer(stage, 1), tid, COUNT, acc);
            if constexpr (K.promoted != 0) {
                if ((i + 1) * COUNT % K.promoted == 0) add(acc, total);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            free = free + 1 == STAGES ? 0 : free + 1;
        }
        if (whole < chunks) {
            follow(whole, chunks, free);
            Mma::template multiply<false>(buffer(stage, 0), buffer(stage, 1), tid, (int)(instructions - whole * COUNT), acc);
        }
        if constexpr (K.promoted != 0) {
            if (instructions % K.promoted != 0) add(acc, total);
        }
        GEMMSIM_UNROLL for (int i = 0; i < Mma::SIZE; ++i) {
            const float y = K.promoted ? total[K.promoted ? i : 0] : float(acc(i));
            save(batch, row0 + Mma::template at<0>(tid, i), col0 + Mma::template at<1>(tid, i), y);
        }
    }

    GEMMSIM_HD void save(int64_t batch, int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        g.out[batch * g.out_batch + row * g.out_row + col] = store_value<F32>(y);
    }
};

// Computes block (x, y) of a grid of tiles. The tiles of each batch follow one another along x.
template <InstructionConfig K> GEMMSIM_HD void instruction_body(const InstructionArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    InstructionGemm<K> gemm{g, nullptr, nullptr, false, false, (int)tid};
    gemm.run(x / g.tiles_m, x % g.tiles_m * INSTRUCTION_M, (int64_t)y * INSTRUCTION_N);
}

}  // namespace gemmsim
