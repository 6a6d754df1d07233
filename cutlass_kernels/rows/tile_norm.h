// Normalisation of a tile of rows and its gradient, with the steps of rows/norm.h. Centred and scaled elements are computed again
// where they are needed: two or three instructions cost less than the memory to store them.
#pragma once
#include "rows/norm.h"
#include "rows/tile_rows.h"

namespace gemmsim::rows {

template <TileConfig K> GEMMSIM_HD void tile_norm(const Tile<K>& t) {
    double* const down = t.shared.top;
    double* const std = t.shared.other;
    const double count = (double)t.a.cols;
    const bool mine = (int)t.tid < t.live;
    if constexpr (K.centered) t.template sum<MEAN_SUM>([&](int64_t j, int64_t k) { return t.template input<0>(t.index(j, k)); });
    if (mine) {
        double mean = 0.0;
        if constexpr (K.centered) mean = t.steps.template div<MEAN>(t.shared.total[t.tid], count, t.at(t.tid, 0));
        t.template output<1>(t.first + t.tid, mean);
        down[t.tid] = -mean;
    }
    block_sync();
    const auto centre = [&](int64_t j, int64_t k) {
        const double x = t.template input<0>(t.index(j, k));
        if constexpr (K.centered) return t.steps.template add<CENTER>(x, down[j], t.at(j, k));
        else return x;
    };
    t.template sum<VAR_SUM>([&](int64_t j, int64_t k) {
        const double s = centre(j, k);
        return t.steps.template mul<SQUARE>(s, s, t.at(j, k));
    });
    if (mine) {
        const uint64_t at = t.at(t.tid, 0);
        const double var = t.steps.template div<VAR>(t.shared.total[t.tid], count, at);
        std[t.tid] = t.steps.template root<ROOT>(t.steps.template add<EPS>(var, t.a.eps, at), at);
        t.template output<2>(t.first + t.tid, t.steps.template div<INVERSE>(1.0, std[t.tid], at));
    }
    block_sync();
    t.each([&](int64_t j, int64_t k) {
        const uint64_t at = t.at(j, k);
        double y = t.steps.template div<SCALED>(centre(j, k), std[j], at);
        if constexpr (K.weight) y = t.steps.template mul<WEIGHTED>(t.template input<1>(k), y, at);
        if constexpr (K.bias) y = t.steps.template add<SHIFTED>(y, t.template input<2>(k), at);
        else y = t.steps.template round<SHIFTED>(y, at);
        t.template output<0>(t.index(j, k), y);
    });
}

template <TileConfig K> GEMMSIM_HD void tile_norm_grad(const Tile<K>& t) {
    double* const first = t.shared.top;  // minus the mean of n
    double* const second = t.shared.other;
    const double count = (double)t.a.cols;
    const bool mine = (int)t.tid < t.live;
    const auto hat = [&](int64_t j, int64_t k) {
        double x = t.template input<0>(t.index(j, k));
        if constexpr (K.centered) x = t.steps.template add<G_CENTER>(x, -t.template input<2>(t.first + j), t.at(j, k));
        return t.steps.template mul<G_HAT>(x, t.template input<3>(t.first + j), t.at(j, k));
    };
    const auto n = [&](int64_t j, int64_t k) {
        const double g = t.template input<4>(t.index(j, k));
        if constexpr (K.weight) return t.steps.template mul<G_WEIGHT>(t.template input<1>(k), g, t.at(j, k));
        else return g;
    };
    if constexpr (K.centered) {
        t.template sum<G_SUM1>(n);
        if (mine) first[t.tid] = -t.steps.template div<G_MEAN1>(t.shared.total[t.tid], count, t.at(t.tid, 0));
        block_sync();
    }
    t.template sum<G_SUM2>([&](int64_t j, int64_t k) { return t.steps.template mul<G_PROD>(hat(j, k), n(j, k), t.at(j, k)); });
    if (mine) second[t.tid] = t.steps.template div<G_MEAN2>(t.shared.total[t.tid], count, t.at(t.tid, 0));
    block_sync();
    t.each([&](int64_t j, int64_t k) {
        const uint64_t at = t.at(j, k);
        const double h = hat(j, k);
        double d = n(j, k);
        if constexpr (K.centered) d = t.steps.template add<G_DIFF1>(d, first[j], at);
        d = t.steps.template add<G_DIFF2>(d, -t.steps.template mul<G_SCALED>(h, second[j], at), at);
        t.template output<0>(t.index(j, k), t.steps.template mul<G_OUT>(d, t.template input<3>(t.first + j), at));
        t.template output<1>(t.index(j, k), t.steps.template mul<G_TERM>(h, t.template input<4>(t.index(j, k)), at));
    });
}

}  // namespace gemmsim::rows
