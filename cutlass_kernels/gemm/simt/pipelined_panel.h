// Panels whose next STAGES chunks are in flight to shared memory while earlier ones are used. They have the same elements there as in
// global memory. Each thread copies what it later converts itself, so that it waits only for its own copies. Tiles of few rows use
// several stages (GemmConfig::stages).
#pragma once
#include "gemm/simt/panel.h"
#include "gemmsim/device/async.h"

namespace gemmsim {

// With STAGES 0, or if the operand's elements cannot be copied (PANEL::COPIES), one chunk is read ahead into registers.
template <class PANEL, int THREADS, int STAGES> struct Staged : PANEL {
    typedef typename PANEL::Words Words;
    static constexpr bool AHEAD = STAGES > 0 && PANEL::COPIES;
    static constexpr unsigned BYTES = AHEAD ? STAGES * THREADS * PANEL::READS * sizeof(Words) : 0;

    Words* mine;  // the thread's part of the stages
    int stage;

    // Starts the copies of the first chunks, from term `first` on. The last term is k - 1.
    GEMMSIM_HD void begin(uint8_t* memory, int tid, int first, int k, const int32_t* order) {
        if constexpr (AHEAD) {
            mine = (Words*)memory + tid;
            stage = 0;
            GEMMSIM_UNROLL for (int s = 0; s < STAGES; ++s) ask(k - first - s * PANEL::DEPTH_OF);
        } else this->fetch(first, k - first, order);
    }
    // Waits for the next chunk and loads it into registers. Callers call it before they store that chunk.
    GEMMSIM_HD void take() {
        if constexpr (AHEAD) {
            wait_async<STAGES - 1>();
            GEMMSIM_UNROLL for (int e = 0; e < PANEL::READS; ++e) this->held[e] = mine[(stage * PANEL::READS + e) * THREADS];
        }
    }
    // Starts the copies of the chunk that takes the free stage, after a chunk was stored. `first` is the first term that was not stored
    // yet, and `left` is the number of terms from there on.
    GEMMSIM_HD void refill(int first, int left, const int32_t* order) {
        if constexpr (AHEAD) ask(left - (STAGES - 1) * PANEL::DEPTH_OF);
        else if (left > 0) this->fetch(first, left, order);
    }

private:
    // Starts the copies of one more chunk. `left` terms remain from its first one on.
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
