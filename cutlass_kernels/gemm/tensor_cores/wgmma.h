// Matrix products by warp groups' instructions (wgmma, sm_90a), in tiles of 128 x 128 outputs and for k ascending. An output is one
// chain of instructions from +0, or the sum of chains of `period` instructions each. The partial sum of each such chain is added to
// a register of binary32; the scales of block formats multiply it first. One warp group copies chunks (wgmma_loader.h), and the two
// that multiply do nothing else. gemmsim/backends/cuda/tensor_cores/native_mma.py (chains) and wgmma_block_scaled.py (scales) select
// this file; route.py says when such instructions take the place of their model.
#pragma once
#include "gemm/tensor_cores/wgmma_loader.h"

namespace gemmsim {

template <GroupConfig K> struct GroupGemm {
    typedef GroupMma<K> Mma;
    typedef typename Mma::Sums Sums;
    typedef GroupShared<K> Shared;
    static constexpr int SIZE = Mma::SIZE, COUNT = GROUP_COUNT, PERIOD = K.period;
    // Each chain lies within one chunk. While its partial sum is added, the instructions of the next chain run.
    static constexpr bool WITHIN = K.scaled || (PERIOD > 0 && PERIOD < COUNT);
    static_assert(SIZE == 64 && instruction_terms(K.a) == instruction_terms(K.b));
    static_assert(PERIOD == 0 || COUNT % PERIOD == 0 || PERIOD % COUNT == 0);

    const GroupArgs& g;
    int tid;  // number among the threads that multiply
    Ring<GROUP_STAGES> ring;

    GEMMSIM_HD uint8_t* a() const { return Shared::codes(ring.stage, 0); }
    GEMMSIM_HD uint8_t* b() const { return Shared::codes(ring.stage, 1); }
    // Signals that this warp no longer reads a place.
    GEMMSIM_HD void leave(int stage) const {
        GroupOps::warp_sync();
        if (tid % 32 == 0) GroupOps::arrive(Shared::left(stage));
    }
    static GEMMSIM_HD int before(int stage) { return stage == 0 ? GROUP_STAGES - 1 : stage - 1; }

    struct alignas(16) Four {
        float x[4];
    };
    // Adds partial sum q of the chunk to `total`. NEAR: all scales of the chunk are near one (is_near_one).
    template <bool NEAR> GEMMSIM_HD void add(Sums& sums, float (&total)[SIZE], int q) const {
        if constexpr (!K.scaled) {
            GEMMSIM_UNROLL for (int i = 0; i < SIZE; ++i) total[i] = add_rn(total[i], float(sums(i)));
        } else {
            const float* const of = Shared::scales(ring.stage) + q * SCALES_OF_TOTAL;
            const float upper = of[group_row(tid, 0)], lower = of[group_row(tid, 2)];
            const Four* const columns = (const Four*)(of + column_place(group_column(tid, 0)));
            GEMMSIM_UNROLL for (int j = 0; j < SIZE / 8; ++j) {
                const Four four = columns[j];
                GEMMSIM_UNROLL for (int i = 0; i < 8; ++i) {
                    const float x = i / 2 % 2 ? lower : upper, y = four.x[i / 4 * 2 + i % 2], t = float(sums(8 * j + i));
                    total[8 * j + i] = NEAR ? scaled_near(total[8 * j + i], t, x, y) : scaled_any(total[8 * j + i], t, x, y);
                }
            }
        }
    }
    GEMMSIM_HD bool is_near() const {
        if constexpr (!K.scaled) return true;
        const uint32_t* const far = Shared::far(ring.stage);
        return (far[0] | far[1] | far[2] | far[3]) == 0;
    }

    GEMMSIM_HD void issue(Sums& sums, int first, int count, bool fresh) const {
        Mma::begin(sums);
        GEMMSIM_UNROLL for (int k = 0; k < count; ++k) Mma::issue(a(), b(), tid, first + k, fresh && k == 0, sums);
        Mma::commit();
    }

    // Computes a whole chunk. While one partial sum is added, the instructions of the next chain run.
    GEMMSIM_HD void within(Sums (&sums)[2], float (&total)[SIZE]) const {
        constexpr int TOTALS = WITHIN ? COUNT / (PERIOD ? PERIOD : 1) : 1, OF = WITHIN ? PERIOD : COUNT;
        issue(sums[0], 0, OF, true);
        GEMMSIM_UNROLL for (int q = 0; q < TOTALS; ++q) {
            if (q + 1 < TOTALS) {
                issue(sums[(q + 1) & 1], (q + 1) * OF, OF, true);
                Mma::template settle<1>(sums[q & 1]);
            } else Mma::template settle<0>(sums[q & 1]);
            add<true>(sums[q & 1], total, q);
        }
    }
    // Issues the first `count` instructions of a chunk and waits for each. Instructions beyond the last term are no part of the chain and
    // are not issued. `done`: the number of instructions before this chunk.
    GEMMSIM_HD void singly(Sums& sums, float (&total)[PERIOD ? SIZE : 1], int count, int64_t done) const {
        GEMMSIM_NO_UNROLL for (int k = 0; k < count; ++k) {
            const int64_t now = done + k;
            Mma::begin(sums);
            Mma::issue(a(), b(), tid, k, PERIOD ? now % (PERIOD ? PERIOD : 1) == 0 : now == 0, sums);
            Mma::commit();
            Mma::template settle<0>(sums);
            if constexpr (WITHIN) {
                if ((k + 1) % PERIOD == 0 || k + 1 == count) add<false>(sums, total, k / PERIOD);
            }
        }
    }

    // Computes whole chunks of chains that continue from one chunk to the next. The instructions of a chunk are issued before those of
    // the previous chunk are done.
    GEMMSIM_HD void chunks(Sums& sums, float (&total)[PERIOD ? SIZE : 1], int64_t whole) {
        bool fresh = true;
        GEMMSIM_NO_UNROLL for (int64_t i = 0; i < whole; ++i, ring.next()) {
            GroupOps::wait(Shared::filled(ring.stage), ring.filled());
            issue(sums, 0, COUNT, fresh);
            fresh = PERIOD != 0 && (i + 1) * COUNT % (PERIOD ? PERIOD : 1) == 0;
            if constexpr (PERIOD != 0) {
                if (fresh) {
                    Mma::template settle<0>(sums);
                    add<true>(sums, total, 0);
                } else Mma::template settle<1>(sums);
            } else Mma::template settle<1>(sums);
            if (i > 0) leave(before(ring.stage));
        }
        Mma::template settle<0>(sums);
    }

    GEMMSIM_HD void run(int64_t batch, int64_t row0, int64_t col0) {
        const int64_t instructions = (g.k + instruction_terms(K.a) - 1) / instruction_terms(K.a), whole = instructions / COUNT;
        const int rest = (int)(instructions - whole * COUNT);
        float total[PERIOD ? SIZE : 1] = {};
        if constexpr (WITHIN) {
            GEMMSIM_NO_UNROLL for (int64_t i = 0; i * COUNT < instructions; ++i, ring.next()) {
                Sums sums[2];
                GroupOps::wait(Shared::filled(ring.stage), ring.filled());
                if (i < whole && is_near()) within(sums, total);
                else singly(sums[0], total, i < whole ? COUNT : rest, i * COUNT);
                leave(ring.stage);
            }
            write(total, batch, row0, col0);
        } else {
            Sums sums;
            Mma::clear(sums);
            chunks(sums, total, whole);
            if (rest) {
                GroupOps::wait(Shared::filled(ring.stage), ring.filled());
                singly(sums, total, rest, whole * COUNT);
            }
            if constexpr (PERIOD != 0) {
                if (instructions % PERIOD != 0) add<true>(sums, total, 0);
                write(total, batch, row0, col0);
            } else write(sums, batch, row0, col0);
        }
    }

    template <class NUMBERS> GEMMSIM_HD void write(const NUMBERS& y, int64_t batch, int64_t row0, int64_t col0) const {
        GEMMSIM_UNROLL for (int i = 0; i < SIZE; ++i) save(batch, row0 + group_row(tid, i), col0 + group_column(tid, i), register_at(y, i));
    }
    static GEMMSIM_HD float register_at(const Sums& y, int i) { return float(y(i)); }
    static GEMMSIM_HD float register_at(const float (&y)[PERIOD ? SIZE : 1], int i) { return y[PERIOD ? i : 0]; }
    GEMMSIM_HD void save(int64_t batch, int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        g.out[batch * g.out_batch + row * g.out_row + col] = store_value<F32>(y);
    }
};

// Computes block (x, y) of a grid of tiles. The tiles of each batch follow one another along x.
template <GroupConfig K> GEMMSIM_HD void group_body(const GroupArgs& g, uint32_t thread, uint32_t x, uint32_t y) {
    const int64_t batch = x / g.tiles_m, row0 = (int64_t)(x % g.tiles_m) * INSTRUCTION_M, col0 = (int64_t)y * INSTRUCTION_N;
    GroupShared<K>::open((int)thread);
    if (thread < GROUP_LOADERS) {
        GroupOps::fewer_registers<LOADER_REGISTERS>();
        const int64_t bytes = g.k * element_bytes(K.a);
        GroupLoader<K>{g, (int)thread, batch, row0, col0}.run((bytes + INSTRUCTION_LINE - 1) / INSTRUCTION_LINE);
    } else {
        GroupOps::more_registers<GROUP_REGISTERS>();
        GroupGemm<K>{g, (int)thread - GROUP_LOADERS, {}}.run(batch, row0, col0);
    }
}

}  // namespace gemmsim
