// Computes tiles of 128 x 128 outputs from values in bfloat16, which every tile decodes for itself. Shared memory has two buffers;
// the codes of the next chunk are loaded while the instructions multiply this one.
#pragma once
#include "mx/block_scaled_atoms.h"

namespace gemmsim {

template <TensorConfig K> struct TensorGemm {
    typedef TensorMma<K.route> Mma;
    static constexpr unsigned SHARED_BYTES = 4 * TENSOR_TILE_BYTES + 1024;

    const TensorArgs& g;
    int64_t row0, col0;
    int tid;
    TensorLine<K.a, K.packing_a> left;
    TensorLine<K.b, K.packing_b> right;

    // A buffer is aligned to the swizzle's period.
    static GEMMSIM_HD uint8_t* buffer(int stage, int operand) { return aligned_shared() + (stage * 2 + operand) * TENSOR_TILE_BYTES; }
    GEMMSIM_HD void fetch(int64_t first) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2, at = first + tid % 2 * 32;
        left.fetch(g.a + row * g.a_row, g.scale_a + row * g.scale_a_row, at, g.k, row < g.m);
        right.fetch(g.b + col * g.b_row, g.scale_b + col * g.scale_b_row, at, g.k, col < g.n);
    }
    GEMMSIM_HD void store(int stage) const {
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            const int at = Mma::place(tid / 2, tid % 2 * 32 + 8 * i);
            *(MxPack<uint32_t, 4>*)(buffer(stage, 0) + at) = left.values(i);
            *(MxPack<uint32_t, 4>*)(buffer(stage, 1) + at) = right.values(i);
        }
        Mma::publish();
    }

    GEMMSIM_HD void run() {
        typename Mma::Sums sums;
        Mma::clear(sums);
        fetch(0);
        store(0);
        block_sync();
        for (int64_t at = 0; at < g.k; at += TENSOR_K) {
            const int stage = (int)(at / TENSOR_K) & 1;
            if (at + TENSOR_K < g.k) fetch(at + TENSOR_K);
            Mma::multiply(buffer(stage, 0), buffer(stage, 1), tid, sums);
            if (at + TENSOR_K < g.k) store(stage ^ 1);
            block_sync();
        }
        GEMMSIM_UNROLL for (int i = 0; i < Mma::SIZE; ++i) {
            save(row0 + Mma::template at<0>(tid, i), col0 + Mma::template at<1>(tid, i), sums(i));
        }
    }

    GEMMSIM_HD void save(int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        ((typename Storage<K.out>::Word*)g.out)[row * g.out_row + col] = store_value<K.out>(with_tensor_scales<K>(y, g));
    }
};

// Block (x, y) of a grid of tiles.
template <TensorConfig K> GEMMSIM_HD void tensor_body(const TensorArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    TensorGemm<K> gemm{g, (int64_t)x * TENSOR_M, (int64_t)y * TENSOR_N, (int)tid};
    gemm.run();
}

}  // namespace gemmsim
