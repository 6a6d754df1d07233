// Panels of numbers that need no conversion: float32 operands without gaps that no cast rounds. `cp.async` copies them to shared memory
// and keeps their layout: the terms of a line or the lines of a term are contiguous. No thread needs registers for a chunk, and nothing
// is transposed. GemmConfig::copied selects them.
#pragma once
#include "gemm/simt/panel.h"
#include "gemmsim/device/async.h"

namespace gemmsim {

// A panel of N lines of DEPTH terms in float32, without gaps in the direction that LAYOUT names.
template <int N, int DEPTH, int THREADS, int LAYOUT> struct CopiedPanel {
    static constexpr bool TERMS = LAYOUT == TERMS_CONTIGUOUS;
    static_assert(LAYOUT != ANY_STRIDES);
    // A row of shared memory is a line or a term. Each row starts four banks after the previous one, so that neighbouring rows are read
    // at once.
    static constexpr int ROWS = TERMS ? N : DEPTH, LENGTH = TERMS ? DEPTH : N, PITCH = LENGTH + 4, SIZE = ROWS * PITCH;
    // ACROSS neighbouring threads copy a row. Each thread copies COPIES times, PACE rows apart.
    static constexpr int ACROSS = LENGTH / 4, PACE = THREADS / ACROSS, COPIES = ROWS / PACE;
    static_assert(THREADS % ACROSS == 0 && ROWS % PACE == 0 && COPIES <= 32);
    struct alignas(16) Four {
        float v[4];
    };

    static constexpr unsigned BYTES = 0;  // bytes of stages (pipelined_panel.h): none

    const float *base, *origin;
    int64_t step, chunk;  // strides between a thread's copies of a chunk, in bytes, and from a chunk to the next, in elements
    uint32_t inside;      // a bit for each of a thread's copies: whether its line is in the matrix
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
    // Returns whether all lines that the thread copies are in the matrix.
    GEMMSIM_HD bool whole() const { return inside == (uint32_t)((1ull << COPIES) - 1); }
    // Starts the copies of the next DEPTH terms to `panel`. WHOLE: all lines and terms are in the matrix. Otherwise `left` terms remain,
    // and elements beyond the matrix become zeros.
    template <bool WHOLE> GEMMSIM_HD void copy(float* panel, int left) {
        const uint8_t* p = (const uint8_t*)base;
        GEMMSIM_UNROLL for (int e = 0; e < COPIES; ++e, p += step) {
            keep(p);
            const bool there = WHOLE || ((inside >> e & 1) && term + (TERMS ? 0 : e * PACE) < left);
            copy_async<16>(panel + place + e * PACE * PITCH, there ? p : (const uint8_t*)origin, there);
        }
    }
    GEMMSIM_HD void pass() { base += chunk; }
    // Measures the numbers that this thread has copied.
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
