// Runs of plain registers and of compensated sums that count the events of their additions (count_events.h). runs.h selects
// them where a configuration counts events.
#pragma once
#include "gemm/simt/compensated_run.h"
#include "gemm/simt/register_run.h"
#include "gemm/simt/count_events.h"

namespace gemmsim {

template <GemmConfig K> struct CountedRegisterRun : RegisterRun<K> {
    typedef Steps<K> S;
    typedef typename S::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols;

    EventCounts<K> events;

    GEMMSIM_HD void term(const Stream<K>& stream, const Place<K>& place, int at) {
        typename Stream<K>::Number a[R], b[C];
        Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
        Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
        const int64_t k = place.k_of(stream.base + at);
        this->product_draws.seek(place, k);
        this->sum_draws.seek(place, k);
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            const T x = stream.left(a[i]), y = stream.right(a[i], b[j]), before = this->s[i][j];
            const uint32_t draw = this->sum_draws.get(i, j);
            T after;
            if constexpr (K.fused) {
                after = S::step(before, x, y, 0, draw);
                events.fused(i, j, before, x, y, after, draw);
            } else {
                const T q = S::Mul::template product<S::NEAR_PRODUCT>(x, y, this->product_draws.get(i, j));
                after = S::Add::template sum<S::NEAR_SUM>(q, before, draw);
                events.template sum<0, K.add>(i, j, before, q, after, draw);
            }
            this->s[i][j] = after;
        }
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + count; ++at) term(stream, place, at);
        events.settle();
    }
};

template <GemmConfig K> struct CountedCompensatedRun : CompensatedRun<K> {
    typedef CompensatedRun<K> Base;
    typedef typename Steps<K>::T T;
    typedef typename Base::Operations Operations;
    static constexpr int R = K.rows, C = K.cols;

    EventCounts<K> events;

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + count; ++at) {
            typename Stream<K>::Number a[R], b[C];
            Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            this->last = place.k_of(stream.base + at);
            GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
                const Operations operations = {place, i, j, this->last};
                T& s = this->s[i][j];
                const T before = s, added = operations.step(stream.left(a[i]), stream.right(a[i], b[j]), s, this->c[i][j]);
                events.template sum<0, K.add>(i, j, before, added, s, operations.draw(SITE_STEP + 1));
            }
        }
        events.settle();
    }

    GEMMSIM_HD void finish(const Place<K>& place, Totals<K>& out, int64_t terms, int64_t index) {
        Base::finish(place, out, terms, index);
        if constexpr (K.method == KAHAN) return;
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            const uint32_t draw = Operations{place, i, j, this->last}.draw(SITE_FINAL);
            events.template sum<0, K.add>(i, j, this->s[i][j], this->c[i][j], out.v[i][j], draw);
        }
        events.settle();
    }
};

}  // namespace gemmsim
