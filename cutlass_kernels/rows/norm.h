// Layer and root-mean-square normalisation of rows and their gradients (spec: docs/reference/functional.md).
#pragma once
#include "rows/reduce.h"

namespace gemmsim::rows {

enum NormStep {
    MEAN_SUM = 0,
    MEAN = 1,
    CENTER = 2,
    SQUARE = 3,
    VAR_SUM = 4,
    VAR = 5,
    EPS = 6,
    ROOT = 7,
    SCALED = 8,
    WEIGHTED = 9,
    SHIFTED = 10,
    INVERSE = 11
};
enum NormGradStep {
    G_CENTER = 0,
    G_HAT = 1,
    G_WEIGHT = 2,
    G_SUM1 = 3,
    G_MEAN1 = 4,
    G_PROD = 5,
    G_SUM2 = 6,
    G_MEAN2 = 7,
    G_DIFF1 = 8,
    G_SCALED = 9,
    G_DIFF2 = 10,
    G_OUT = 11,
    G_TERM = 12
};

template <class V> struct NormRow {
    const V *x, *weight, *bias;  // weight, bias: null for none
    V* y;                        // may be x
    V mean, rstd;
    double eps;
    bool centered;               // layer norm; else root mean square, which has no mean
};

template <class L> GEMMSIM_HD void norm_row(const L& lanes, NormRow<typename L::V>& r, int64_t cols, int order) {
    typedef typename L::V V;
    const V count = L::splat((double)cols);
    r.mean = L::splat(0.0);
    if (r.centered) r.mean = lanes.div_once(ordered_sum(lanes, cols, order, MEAN_SUM, [&](int64_t k) { return r.x[k]; }), count, MEAN);
    const V down = L::negate(r.mean);
    const V total = ordered_sum(lanes, cols, order, VAR_SUM, [&](int64_t k) {
        const V s = r.centered ? lanes.add(r.x[k], down, CENTER, k) : r.x[k];
        return lanes.mul(s, s, SQUARE, k);
    });
    const V var = lanes.div_once(total, count, VAR);
    const V std = lanes.root(lanes.add_number(var, r.eps, EPS), ROOT, 0);
    r.rstd = lanes.div_once(L::splat(1.0), std, INVERSE);
    for (int64_t k = 0; k < cols; ++k) {
        V y = lanes.div(r.centered ? lanes.add(r.x[k], down, CENTER, k) : r.x[k], std, SCALED, k);
        if (r.weight) y = lanes.mul(r.weight[k], y, WEIGHTED, k);
        r.y[k] = r.bias ? lanes.add(y, r.bias[k], SHIFTED, k) : lanes.round(y, SHIFTED, k);
    }
}

template <class V> struct NormGradRow {
    const V *x, *g, *weight;  // weight: null for none
    // `terms` are those of the weight's gradient: the normalised x times g. `dx` may be `x`, and `terms` may be `g`.
    V *dx, *terms;
    V mean, rstd;
    bool centered;
};

template <class L> GEMMSIM_HD void norm_grad_row(const L& lanes, NormGradRow<typename L::V>& r, int64_t cols, int order) {
    typedef typename L::V V;
    const V count = L::splat((double)cols), down = L::negate(r.mean);
    const auto n = [&](int64_t k) { return r.weight ? lanes.mul(r.weight[k], r.g[k], G_WEIGHT, k) : r.g[k]; };
    for (int64_t k = 0; k < cols; ++k) r.dx[k] = lanes.mul(r.centered ? lanes.add(r.x[k], down, G_CENTER, k) : r.x[k], r.rstd, G_HAT, k);
    V s1 = L::splat(0.0);
    if (r.centered) s1 = L::negate(lanes.div_once(ordered_sum(lanes, cols, order, G_SUM1, n), count, G_MEAN1));
    const V s2 = lanes.div_once(ordered_sum(lanes, cols, order, G_SUM2, [&](int64_t k) { return lanes.mul(r.dx[k], n(k), G_PROD, k); }),
                                count, G_MEAN2);
    for (int64_t k = 0; k < cols; ++k) {
        const V hat = r.dx[k], first = r.centered ? lanes.add(n(k), s1, G_DIFF1, k) : n(k);
        r.dx[k] = lanes.mul(lanes.add(first, L::negate(lanes.mul(hat, s2, G_SCALED, k)), G_DIFF2, k), r.rstd, G_OUT, k);
        r.terms[k] = lanes.mul(hat, r.g[k], G_TERM, k);
    }
}

}  // namespace gemmsim::rows
