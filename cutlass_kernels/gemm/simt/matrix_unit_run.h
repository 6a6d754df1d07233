// Runs of a chip's matrix instruction (HARDWARE), by the model of its step in gemmsim/device/hardware_step.h.
#pragma once
#include "gemm/simt/k_loop.h"
#include "gemmsim/device/hardware_step.h"

namespace gemmsim {

// The operands of a step, read from shared memory. `a` and `b` point at an output's first factors. The next ones lie a pitch apart.
template <class T> struct StepOperands {
    const T *a, *b;
    int pitch_a, pitch_b;

    GEMMSIM_HD float x(int i) const { return (float)a[i * pitch_a]; }
    GEMMSIM_HD float y(int i) const { return (float)b[i * pitch_b]; }
};

template <GemmConfig K> struct HardwareRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = MAGNITUDES;
    static constexpr int R = K.rows, C = K.cols, N = K.hardware.products > 0 ? K.hardware.products : 1;
    static constexpr int PITCH_A = Stream<K>::PanelA::PITCH, PITCH_B = Stream<K>::PanelB::PITCH;

    float c[R][C];
    HeldOperands<N> held[R][C];
    int count;  // number of terms in `held`, which wait for a whole step

    GEMMSIM_HD void start() {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = 0;
        count = 0;
    }
    template <class OPERANDS> static GEMMSIM_HD float step(const OPERANDS& o, int terms, bool plain, float register_) {
        HardwareStep<K.hardware, K.add, OPERANDS> one = {o, terms, plain, register_};
        one.run();
        return one.c;
    }
    GEMMSIM_HD void flush() {
        if (count == 0) return;
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = step(held[i][j], count, false, c[i][j]);
        count = 0;
    }

    // Ends the first tile of a run, of which `terms` were not zeros: the rest of the last step, and at least one more step if there are any.
    GEMMSIM_HD void end_first_tile(int64_t terms) {
        flush();
        if ((terms + N - 1) / N * N >= K.hardware.first) return;
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) held[i][j].a[0] = held[i][j].b[0] = 0;
        count = 1;
        flush();
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = add_rn(c[i][j], 0.0f);  // -0 becomes +0
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int terms) {
        typedef Stream<K> S;
        const int end = first + terms;
        const bool plain = S::largest_product(S::template extent<MEASURES>(stream.buffer()->measured_a),
                                              S::template extent<MEASURES>(stream.buffer()->measured_b)) < 0x1p127f;
        GEMMSIM_NO_UNROLL for (int at = first; at < end;) {
            const T *a = stream.buffer()->a + at * PITCH_A, *b = stream.buffer()->b + at * PITCH_B;
            if (count == 0 && at + N <= end) {
                GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) c[i][j] = step(
                    StepOperands<T>{a + Lines<R, K.down>::line(place.ty, i), b + Lines<C, K.across>::line(place.tx, j), PITCH_A, PITCH_B},
                    N, plain, c[i][j]);
                at += N;
                continue;
            }
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j) {
                    held[i][j].a[count] = (float)a[Lines<R, K.down>::line(place.ty, i)];
                    held[i][j].b[count] = (float)b[Lines<C, K.across>::line(place.tx, j)];
                }
            ++at;
            if (++count == N) flush();
        }
    }
    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) {
        flush();
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) out.v[i][j] = (T)c[i][j];
    }
};

}  // namespace gemmsim
