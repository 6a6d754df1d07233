// The second kernel of split-K (split_k.h). It reads the partial sums of runs from memory, combines them in their order and applies the
// epilogue. A thread computes one output, and a block computes neighbouring columns.
#pragma once
#include "gemm/simt/simt.h"

namespace gemmsim {

// Takes the place of a run in Orders and returns its partial sum from memory. It loads several partial sums at once.
template <GemmConfig K> struct TotalsRead {
    typedef typename Steps<K>::T T;
    static constexpr int AHEAD = 32;
    const T* next;
    int64_t step, left;  // elements from a run to the next; number of runs that remain
    T held[AHEAD];
    int at = AHEAD;

    GEMMSIM_HD void take(Totals<K>& out) {
        if (at == AHEAD) {
            GEMMSIM_UNROLL for (int i = 0; i < AHEAD; ++i) held[i] = i < left ? next[i * step] : (T)0;
            next += AHEAD * step;
            left -= AHEAD;
            at = 0;
        }
        out.v[0][0] = held[at++];
    }
};
struct NoTerms {};

// Computes an exact sum from its parts.
template <GemmConfig K> GEMMSIM_HD void join_sums(const GemmArgs& g, int64_t at, const Place<K>& place, Totals<K>& total) {
    typedef typename RunOf<K>::type Run;
    const typename Run::Part* const parts = (const typename Run::Part*)g.totals;
    Run run;
    run.start();
    GEMMSIM_NO_UNROLL for (int64_t i = 0; i < g.slices; ++i) run.join(parts[i * g.batches * g.m * g.n + at]);
    run.finish(place, total, g.k, 0);
}

template <GemmConfig K> GEMMSIM_HD void join_body(const GemmArgs& g, int tid, int64_t block, int64_t blocks) {
    static_assert(K.split == JOIN && K.levels <= 1 && K.rows == 1 && K.cols == 1 && K.down == 1 && K.init == FROM_ZERO);
    typedef typename Steps<K>::T T;
    const int64_t across = (g.n + K.across - 1) / K.across, each = g.m * across;
    GEMMSIM_NO_UNROLL for (int64_t at = block; at < each * g.batches; at += blocks) {
        const int64_t batch = at / each, row = (at - batch * each) / across, col0 = (at - batch * each - row * across) * K.across;
        if (col0 + tid >= g.n) continue;
        const Place<K> place = {batch * g.m + row + (int64_t)g.row, col0, row, 0, tid, g.seed, g.key};
        const int64_t output = (batch * g.m + row) * g.n + col0 + tid;
        Totals<K> total;
        if constexpr (K.levels == 0) join_sums<K>(g, output, place, total);
        else {
            TotalsRead<K> run;
            run.step = g.batches * g.m * g.n;
            run.left = RunsOf<K.wrapper[0].order>(g.size[0], g.k).count;
            run.next = (const T*)g.totals + output;
            NoTerms terms;
            const BlockScales<K> scales = {g, nullptr, nullptr};
            Orders<K, TotalsRead<K>, NoTerms> orders = {terms, place, g.size, run, scales};
            orders.template walk<0>(0, g.k, total);
        }
        Gemm<K>::save(g, batch, nullptr, row, col0, tid, total);
    }
}

}  // namespace gemmsim
