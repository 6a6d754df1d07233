// Runs of the long accumulator (LONG, Kulisch): exact sums with one rounding at the end.
#pragma once
#include "gemmsim/device/long_sum.h"
#include "gemm/simt/k_loop.h"

namespace gemmsim {

template <GemmConfig K> struct LongRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols;
    // The stream of its rounding's random bits. Each wrapper around it except a permutation adds 32.
    static constexpr int SITE = SITE_COMBINE + 32 * random_levels(K, K.levels);
    // Whether the long number of float operands suffices. The operands decide this, not the carrier of partial sums.
    static constexpr bool NARROW = operand_facts(K.cast_a, K.a).top <= 128 && operand_facts(K.cast_b, K.b).top <= 128 &&
                                   operand_facts(K.cast_a, K.a).quantum >= -149 && operand_facts(K.cast_b, K.b).quantum >= -149;
    typedef LongSum<typename Steps<K>::template Pick<double, float, NARROW>::type> Sum;

    Sum sum[R][C];

    // The partial sum that a block of split-K writes. join() adds one of them to a run of one output.
    typedef Sum Part;
    GEMMSIM_HD const Part& part(int i, int j) const { return sum[i][j]; }
    GEMMSIM_HD void join(const Part& x) { sum[0][0].add(x); }

    GEMMSIM_HD void start() {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) sum[i][j].clear();
    }
    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + count; ++at) {
            typename Stream<K>::Number a[R], b[C];
            Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j) sum[i][j].add((double)stream.left(a[i]), (double)stream.right(a[i], b[j]));
        }
    }
    GEMMSIM_HD void finish(const Place<K>& place, Totals<K>& out, int64_t, int64_t index) {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) {
                uint32_t draw = 0;
                if constexpr (K.add.mode >= SR) draw = place.draw(i, j, index, SITE, K.add.rbits);
                out.v[i][j] = (T)sum[i][j].round(K.add, draw);
            }
    }
};

}  // namespace gemmsim
