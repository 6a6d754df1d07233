// Panels of an operand A that is read through tables of offsets: a convolution without a matrix of its windows in memory.
// GemmConfig::gathered selects them (gemmsim/backends/cuda/simt/implicit_im2col.py).
#pragma once
#include "gemm/simt/k_loop.h"

namespace gemmsim {

// Neighbouring threads take neighbouring lines, which are neighbours in an image. Every thread has one line, so that it reads its entry
// of the row table once. All threads of a warp read the same entries of the column table.
template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, int THREADS, bool PERMUTED>
struct GatheredPanel : Panel<T, DTYPE, CODE, CAST, N, DEPTH, THREADS, ANY_STRIDES, PERMUTED> {
    typedef Panel<T, DTYPE, CODE, CAST, N, DEPTH, THREADS, ANY_STRIDES, PERMUTED> Base;
    typedef typename Base::Word Word;
    static_assert(THREADS % N == 0);

    const int64_t* cols;

    // A line is a pair of an image and a position in it. `offset` is that of the group.
    GEMMSIM_HD void start(const GemmArgs& g, int64_t offset, int64_t line0, int tid) {
        const int line = tid % N;
        const int64_t index = line0 + line;
        this->term = tid / N;
        this->term_step = THREADS / N;
        this->place = this->term * Base::PITCH + line;
        this->place_step = this->term_step * Base::PITCH;
        this->inside = index < g.m;
        this->base = (const Word*)g.a + offset;
        if (this->inside) {
            const int64_t image = index / g.inner;
            this->base += image * g.a_outer + g.rows[index - image * g.inner];
        }
        cols = g.cols;
    }

    GEMMSIM_HD void fetch(int first, int left, const int32_t* order) {
        GEMMSIM_UNROLL for (int e = 0; e < Base::READS; ++e) {
            const int ahead = this->term + e * this->term_step;
            const int64_t at = (int64_t)first + ahead;
            this->held[e].v[0] = (Word)0;
            if (this->inside && ahead < left) this->held[e].v[0] = this->base[cols[PERMUTED ? (int64_t)order[at] : at]];
        }
    }
};

}  // namespace gemmsim
