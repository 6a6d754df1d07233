// The warp group that copies chunks to shared memory for wgmma.h. One thread requests the codes from TMA, and each thread copies the
// scales of one row and one column.
#pragma once
#include "gemm/tensor_cores/wgmma_ops.h"

namespace gemmsim {

// The shared memory of a block: the codes of all places, then their scales, then the barriers.
template <GroupConfig K> struct GroupShared {
    static constexpr int TOTALS = K.scaled ? GROUP_COUNT / K.period : 0;  // partial sums of a chunk
    // The bytes of a place's scales. Behind them lies a word for each warp of the loader: whether one of its scales is far from 1.
    static constexpr int SCALES = K.scaled ? (TOTALS * SCALES_OF_TOTAL + GROUP_LOADERS / 32) * 4 : 0;
    static constexpr unsigned BYTES = GROUP_STAGES * (2 * INSTRUCTION_CHUNK_BYTES + SCALES + 16) + 1024;
    static_assert(!K.scaled || (K.period > 0 && GROUP_COUNT % K.period == 0));

    static GEMMSIM_HD uint8_t* codes(int stage, int operand) { return aligned_shared() + (stage * 2 + operand) * INSTRUCTION_CHUNK_BYTES; }
    static GEMMSIM_HD float* scales(int stage) { return (float*)(codes(GROUP_STAGES, 0) + stage * SCALES); }
    static GEMMSIM_HD uint32_t* far(int stage) { return (uint32_t*)(scales(stage) + TOTALS * SCALES_OF_TOTAL); }
    // The two barriers of a place: `filled` says that it has a chunk, `left` that no warp reads it any more.
    static GEMMSIM_HD uint64_t* filled(int stage) { return (uint64_t*)(codes(GROUP_STAGES, 0) + GROUP_STAGES * SCALES) + stage; }
    static GEMMSIM_HD uint64_t* left(int stage) { return filled(GROUP_STAGES + stage); }

    // Every thread of the block calls this.
    static GEMMSIM_HD void open(int thread) {
        if (thread == 0) {
            for (int i = 0; i < GROUP_STAGES; ++i) {
                GroupOps::make(filled(i), 1 + (K.scaled ? GROUP_LOADERS : 0));
                GroupOps::make(left(i), GROUP_WARPS);
            }
            GroupOps::made();
        }
        block_sync();
    }
};

// The scales of one line of an operand, as a thread reads them. A line or a scale that does not exist has scale 1.
struct ScaleLine {
    const float* line;
    bool exists;

    GEMMSIM_HD float value(int64_t at, int64_t totals) const { return exists && at < totals ? line[at] : 1.0f; }
};

template <GroupConfig K> struct GroupLoader {
    typedef GroupShared<K> Shared;
    static constexpr int TOTALS = Shared::TOTALS, HELD = TOTALS ? TOTALS : 1;

    const GroupArgs& g;
    int thread;
    int64_t batch, row0, col0;

    GEMMSIM_HD void run(int64_t chunks) const {
        const int64_t terms = instruction_terms(K.a) * (K.scaled ? K.period : 1), totals = (g.k + terms - 1) / terms;
        const ScaleLine rows{g.scale_a + batch * g.scale_a_batch + (row0 + thread) * g.scale_a_row, row0 + thread < g.m};
        const ScaleLine columns{g.scale_b + batch * g.scale_b_batch + (col0 + thread) * g.scale_b_row, col0 + thread < g.n};
        Ring<GROUP_STAGES> ring;
        GEMMSIM_NO_UNROLL for (int64_t i = 0; i < chunks; ++i, ring.next()) {
            float a[HELD], b[HELD];  // loaded before the place is free
            GEMMSIM_UNROLL for (int q = 0; q < TOTALS; ++q) {
                a[q] = rows.value(i * TOTALS + q, totals);
                b[q] = columns.value(i * TOTALS + q, totals);
            }
            if (K.scaled || thread == 0) GroupOps::wait(Shared::left(ring.stage), ring.left());
            if (thread == 0) bring(i, ring.stage);
            if constexpr (K.scaled) store(a, b, ring.stage);
        }
    }
    GEMMSIM_HD void bring(int64_t chunk, int stage) const {
        uint64_t* const barrier = Shared::filled(stage);
        GroupOps::expect(barrier, 2 * INSTRUCTION_CHUNK_BYTES);
        const int byte = (int)(chunk * INSTRUCTION_LINE);
        GroupOps::bring(Shared::codes(stage, 0), g.map_a, byte, (int)row0, (int)batch * g.step_a, barrier);
        GroupOps::bring(Shared::codes(stage, 1), g.map_b, byte, (int)col0, (int)batch * g.step_b, barrier);
    }
    GEMMSIM_HD void store(const float (&a)[HELD], const float (&b)[HELD], int stage) const {
        float* const to = Shared::scales(stage);
        bool far = false;
        GEMMSIM_UNROLL for (int q = 0; q < TOTALS; ++q) {
            to[q * SCALES_OF_TOTAL + thread] = a[q];
            to[q * SCALES_OF_TOTAL + column_place(thread)] = b[q];
            far = far || !is_near_one(a[q]) || !is_near_one(b[q]);
        }
        far = GroupOps::any(far);
        if (thread % 32 == 0) Shared::far(stage)[thread / 32] = far;
        GroupOps::arrive(Shared::filled(stage));
    }
};

}  // namespace gemmsim
