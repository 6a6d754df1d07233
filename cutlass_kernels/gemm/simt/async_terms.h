// Reads the factors of a thread's outputs from copied panels (async_panel.h). register_run.h uses this file with GemmConfig::copied.
#pragma once
#include "gemm/simt/k_loop.h"

namespace gemmsim {

// The address in shared memory of one operand's factors for a thread: those of COUNT lines. The factors of the next terms follow.
template <class PANEL, int COUNT, int SIDE> struct CopiedLines {
    typedef Lines<COUNT, SIDE, PANEL::TERMS> At;
    static constexpr uint32_t STEP = PANEL::TERMS ? 4 : 4 * PANEL::PITCH;  // bytes from a term to the next
    struct alignas(16) Four {
        float v[4];
    };
    uint32_t at;

    GEMMSIM_HD CopiedLines(uint32_t panel, int side, int term) {
        at = panel + term * STEP + (PANEL::TERMS ? side * 4 * PANEL::PITCH : side * 4 * At::GROUP);
        keep(at);
    }
    GEMMSIM_HD void pass(int terms) { at += terms * STEP; }
    // Loads four terms of four lines. They are the thread's lines from number 4 * group on.
    GEMMSIM_HD void load(int group, float (&x)[4][4]) const {
        GEMMSIM_UNROLL for (int n = 0; n < 4; ++n) {
            const Four read = *(const Four*)(shared_at(at) + (PANEL::TERMS ? (4 * group + n) * SIDE : n) * 4 * PANEL::PITCH +
                                             (PANEL::TERMS ? 0 : group * 16 * SIDE));
            GEMMSIM_UNROLL for (int i = 0; i < 4; ++i)(PANEL::TERMS ? x[n][i] : x[i][n]) = read.v[i];
        }
    }
    // Loads one term of one line.
    GEMMSIM_HD float one(int i) const {
        return *(const float*)(shared_at(at) + (PANEL::TERMS ? i * SIDE * 4 * PANEL::PITCH : (i / 4 * 4 * SIDE + i % 4) * 4));
    }
};

// Calls add(i, j, a, b) for each output and each of the terms [first, end) of a chunk. The terms of an output are in order. With FOUR,
// four terms are read at once as long as four remain. Four columns are read at once then, so that few factors are in registers.
// Otherwise terms are read one by one.
template <GemmConfig K, bool FOUR, class ADD> GEMMSIM_HD void add_copied(const Stream<K>& stream, int ty, int tx, int first, int end,
                                                                         ADD add) {
    static_assert(K.levels == 0 && !K.split);  // so `first` is 0; runs within K could start at a `first` not divisible by 4
    typedef Stream<K> S;
    const uint32_t chunk = shared_base() + stream.used,
                   panels = (uint32_t)((const uint8_t*)stream.buffer()->b - (const uint8_t*)stream.buffer()->a);
    CopiedLines<typename S::PanelA, K.rows, K.down> a(chunk, ty, first);
    CopiedLines<typename S::PanelB, K.cols, K.across> b(chunk + panels, tx, first);
    const uint32_t stop = a.at + (end - first) * a.STEP;
    if constexpr (FOUR) {
        const int last = (int)stop - 4 * (int)a.STEP;
        GEMMSIM_NO_UNROLL while ((int)a.at <= last) {
            float x[K.rows / 4][4][4], y[2][4][4];
            GEMMSIM_UNROLL for (int i = 0; i < K.rows / 4; ++i) a.load(i, x[i]);
            b.load(0, y[0]);
            GEMMSIM_UNROLL for (int j = 0; j < K.cols / 4; ++j) {
                if (j + 1 < K.cols / 4) b.load(j + 1, y[(j + 1) % 2]);
                GEMMSIM_UNROLL for (int t = 0; t < 4; ++t) GEMMSIM_UNROLL for (int n = 0; n < 4; ++n)
                    GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) add(i, 4 * j + n, x[i / 4][i % 4][t], y[j % 2][n][t]);
            }
            a.pass(4), b.pass(4);
        }
    }
    GEMMSIM_NO_UNROLL while (a.at != stop) {
        float x[K.rows];
        GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) x[i] = a.one(i);
        GEMMSIM_UNROLL for (int j = 0; j < K.cols; ++j) {
            const float y = b.one(j);
            GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) add(i, j, x[i], y);
        }
        a.pass(1), b.pass(1);
    }
}

}  // namespace gemmsim
