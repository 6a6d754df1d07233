// Panels of numbers that are used as they are: copied to shared memory as they lie in global memory (`cp.async`), a line's terms or
// a term's lines side by side. No thread holds a chunk in registers meanwhile, and nothing is turned round.
#pragma once
#include "gemm/simt/panel.h"
#include "gemmsim/device/async.h"

namespace gemmsim {

// N lines of DEPTH terms, float32, without gaps in the direction that LAYOUT says.
template <int N, int DEPTH, int THREADS, int LAYOUT> struct CopiedPanel {
    static constexpr bool TERMS = LAYOUT == TERMS_CONTIGUOUS;
    static_assert(LAYOUT != ANY_STRIDES);
    // Rows of shared memory: lines or terms. One starts four banks after the last, so that neighbours are read at once.
    static constexpr int ROWS = TERMS ? N : DEPTH, LENGTH = TERMS ? DEPTH : N, PITCH = LENGTH + 4, SIZE = ROWS * PITCH;
    // Threads side by side copy a row; so many rows further each copies the next.
    static constexpr int ACROSS = LENGTH / 4, PACE = THREADS / ACROSS, COPIES = ROWS / PACE;
    static_assert(THREADS % ACROSS == 0 && ROWS % PACE == 0 && COPIES <= 32);
    struct alignas(16) Four {
        float v[4];
    };

    static constexpr unsigned BYTES = 0;  // of stages

    const float *base, *origin;
    int64_t step, chunk;  // between a thread's copies of a chunk, in bytes; from a chunk to the next
    uint32_t inside;      // which of a thread's copies are of lines in the matrix, a bit each
    int term, place;

    GEMMSIM_HD void start(const void* data, int64_t offset, int64_t line0, int64_t lines, int64_t line_stride, int64_t stride, int tid) {
        const int row = tid / ACROSS, along = tid % ACROSS * 4, line = TERMS ? row : along;
        term = TERMS ? along : row;
        place = row * PITCH + along;
        origin = (const float*)data;
        base = origin + offset + (line0 + line) * line_stride + term * stride;
        step = 4 * PACE * (TERMS ? line_stride : stride);
        chunk = DEPTH * stride;
        inside = 0;
        GEMMSIM_UNROLL for (int e = 0; e < COPIES; ++e) inside |= line0 + line + (TERMS ? e * PACE : 0) < lines ? 1u << e : 0u;
        keep(inside), keep(place), keep(step);
    }
    // Whether all of the thread's copies are of lines in the matrix.
    GEMMSIM_HD bool whole() const { return inside == (uint32_t)((1ull << COPIES) - 1); }
    // The next DEPTH terms on their way to `panel`. WHOLE: all lines and terms are in the matrix; else `left` terms are to come, and
    // beyond the matrix there are zeros.
    template <bool WHOLE> GEMMSIM_HD void copy(float* panel, int left) {
        const uint8_t* p = (const uint8_t*)base;
        GEMMSIM_UNROLL for (int e = 0; e < COPIES; ++e, p += step) {
            keep(p);
            const bool there = WHOLE || ((inside >> e & 1) && term + (TERMS ? 0 : e * PACE) < left);
            copy_async<16>(panel + place + e * PACE * PITCH, there ? p : (const uint8_t*)origin, there);
        }
    }
    GEMMSIM_HD void pass() { base += chunk; }
    // Of what this thread has copied.
    template <int MEASURE> GEMMSIM_HD Extent measure(const float* panel) const {
        Extent extent;
        if constexpr (MEASURE != NOTHING) GEMMSIM_UNROLL for (int e = 0; e < COPIES; ++e) {
                const Four x = *(const Four*)(panel + place + e * PACE * PITCH);
                GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
                    extent.meet(x.v[i]);
                    if constexpr (MEASURE == EXTENTS) extent.look_into(x.v[i]);
                }
            }
        return extent;
    }
};

}  // namespace gemmsim
