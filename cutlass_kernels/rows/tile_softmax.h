// Softmax of a tile of rows and its gradient, with the steps of rows/softmax.h.
#pragma once
#include "rows/softmax.h"
#include "rows/tile_rows.h"

namespace gemmsim::rows {

template <TileConfig K> GEMMSIM_HD void tile_softmax(const Tile<K>& t) {
    typedef typename Storage<K.work>::Word Word;
    Word* const work = (Word*)t.a.work;
    t.negated_maxima();
    t.each([&](int64_t j, int64_t k) {
        const uint64_t at = t.at(j, k);
        const double offset = t.steps.template add<OFFSET>(t.template input<0>(t.index(j, k)), t.shared.top[j], at);
        t.template put<K.work>(work, t.index(j, k), t.steps.template function<EXP, EXPONENT>(offset, 0.0, at));
    });
    block_sync();
    t.template sum<TOTAL>([&](int64_t j, int64_t k) { return (double)work[t.index(j, k)]; });
    t.each([&](int64_t j, int64_t k) {
        const int64_t i = t.index(j, k);
        t.template output<0>(i, t.steps.template div<OUTPUT>((double)work[i], t.shared.total[j], t.at(j, k)));
    });
}

template <TileConfig K> GEMMSIM_HD void tile_log_softmax(const Tile<K>& t) {
    t.negated_maxima();
    const auto offset = [&](int64_t j, int64_t k) {
        return t.steps.template add<OFFSET>(t.template input<0>(t.index(j, k)), t.shared.top[j], t.at(j, k));
    };
    if ((int)t.tid < t.live) {
        double l = offset(t.tid, 0);
        GEMMSIM_NO_UNROLL for (int64_t k = 1; k < t.a.cols; ++k) l =
            t.steps.template function<LOG_ADD, TOTAL>(l, offset(t.tid, k), t.at(t.tid, k));
        t.shared.total[t.tid] = -l;
    }
    block_sync();
    t.each([&](int64_t j, int64_t k) {
        const uint64_t at = t.at(j, k);
        const double x = t.steps.template add<EXPONENT>(offset(j, k), t.shared.total[j], at);
        t.template output<0>(t.index(j, k), t.steps.template function<EXP, OUTPUT>(x, 0.0, at));
    });
}

template <TileConfig K> GEMMSIM_HD void tile_softmax_grad(const Tile<K>& t) {
    t.template sum<GRAD_ADD>([&](int64_t j, int64_t k) {
        const int64_t i = t.index(j, k);
        return t.steps.template mul<GRAD_MUL>(t.template input<0>(i), t.template input<1>(i), t.at(j, k));
    });
    t.each([&](int64_t j, int64_t k) {
        const int64_t i = t.index(j, k);
        const double d = t.steps.template add<GRAD_DIFF>(t.template input<1>(i), -t.shared.total[j], t.at(j, k));
        t.template output<0>(i, t.steps.template mul<GRAD_OUT>(d, t.template input<0>(i), t.at(j, k)));
    });
}

}  // namespace gemmsim::rows
