// Panels whose next chunks are on their way to shared memory while earlier ones are used: STAGES of them, as they lie in global
// memory. Each thread copies what it will convert itself, so that it waits for its own copies only.
#pragma once
#include "gemm/simt/panel.h"
#include "gemmsim/device/async.h"

namespace gemmsim {

// STAGES 0, or an operand whose elements cannot be copied so: one chunk ahead, in registers.
template <class PANEL, int THREADS, int STAGES> struct Staged : PANEL {
    typedef typename PANEL::Words Words;
    static constexpr bool AHEAD = STAGES > 0 && PANEL::COPIES;
    static constexpr unsigned BYTES = AHEAD ? STAGES * THREADS * PANEL::READS * sizeof(Words) : 0;

    Words* mine;  // the thread's part of the stages
    int stage;

    // From term `first` on, up to term k.
    GEMMSIM_HD void begin(uint8_t* memory, int tid, int first, int k, const int32_t* order) {
        if constexpr (AHEAD) {
            mine = (Words*)memory + tid;
            stage = 0;
            GEMMSIM_UNROLL for (int s = 0; s < STAGES; ++s) ask(k - first - s * PANEL::DEPTH_OF);
        } else this->fetch(first, k - first, order);
    }
    // Before the next chunk is stored.
    GEMMSIM_HD void take() {
        if constexpr (AHEAD) {
            wait_async<STAGES - 1>();
            GEMMSIM_UNROLL for (int e = 0; e < PANEL::READS; ++e) this->held[e] = mine[(stage * PANEL::READS + e) * THREADS];
        }
    }
    // After chunk `first` was stored, `left` terms from its end on: the one that comes into its place.
    GEMMSIM_HD void refill(int first, int left, const int32_t* order) {
        if constexpr (AHEAD) ask(left - (STAGES - 1) * PANEL::DEPTH_OF);
        else if (left > 0) this->fetch(first, left, order);
    }

private:
    // One more chunk on its way, `left` terms from its beginning on.
    GEMMSIM_HD void ask(int left) {
        const typename PANEL::Word* p = this->base;
        GEMMSIM_UNROLL for (int e = 0; e < PANEL::READS; ++e, p += this->step) {
            const bool there = (this->inside >> e & 1) && this->term + e * this->term_step < left;
            copy_async<(int)sizeof(Words)>(mine + (stage * PANEL::READS + e) * THREADS, there ? p : this->origin, there);
        }
        commit_async();
        this->base += this->chunk;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
};

}  // namespace gemmsim
