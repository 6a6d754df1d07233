// Softmax of rows and its gradient (spec: docs/reference/functional.md). Element k of x, y and g lies at [k * L::COUNT].
#pragma once
#include "rows/reduce.h"

namespace gemmsim::rows {

enum SoftmaxStep { OFFSET = 0, EXPONENT = 1, TOTAL = 2, OUTPUT = 3 };  // log-softmax: TOTAL is the logarithm's step
enum GradStep { GRAD_MUL = 0, GRAD_ADD = 1, GRAD_DIFF = 2, GRAD_OUT = 3 };

template <class L> GEMMSIM_HD typename L::V row_max(const typename L::V* x, int64_t cols) {
    typename L::V m = x[0];
    for (int64_t k = 1; k < cols; ++k) m = L::larger(x[k], m);
    return m;
}

// e_k = exp(x_k - max); y_k = e_k / sum. `y` may be `x`. Rows of -inf alone give NaN, which the caller may replace.
template <class L> GEMMSIM_HD void softmax_row(const L& lanes, const typename L::V* x, typename L::V* y, int64_t cols, int order) {
    typedef typename L::V V;
    const V top = L::negate(row_max<L>(x, cols));
    for (int64_t k = 0; k < cols; ++k) y[k] = lanes.function(EXP, lanes.add(x[k], top, OFFSET, k), top, EXPONENT, k);
    const V s = ordered_sum(lanes, cols, order, TOTAL, [&](int64_t k) { return y[k]; });
    for (int64_t k = 0; k < cols; ++k) y[k] = lanes.div(y[k], s, OUTPUT, k);
}

// o_k = x_k - max; l = ln(e^l + e^o_k) for each k; y_k = exp(o_k - l).
template <class L> GEMMSIM_HD void log_softmax_row(const L& lanes, const typename L::V* x, typename L::V* y, int64_t cols) {
    typedef typename L::V V;
    const V top = L::negate(row_max<L>(x, cols));
    for (int64_t k = 0; k < cols; ++k) y[k] = lanes.add(x[k], top, OFFSET, k);
    V l = y[0];
    for (int64_t k = 1; k < cols; ++k) l = lanes.function(LOG_ADD, l, y[k], TOTAL, k);
    const V down = L::negate(l);
    for (int64_t k = 0; k < cols; ++k) y[k] = lanes.function(EXP, lanes.add(y[k], down, EXPONENT, k), down, OUTPUT, k);
}

// w = sum of mul(y_k g_k); dx_k = (g_k - w) y_k.
template <class L> GEMMSIM_HD void softmax_grad_row(const L& lanes, const typename L::V* y, const typename L::V* g, typename L::V* dx,
                                                    int64_t cols, int order) {
    typedef typename L::V V;
    const V w = L::negate(ordered_sum(lanes, cols, order, GRAD_ADD, [&](int64_t k) { return lanes.mul(y[k], g[k], GRAD_MUL, k); }));
    for (int64_t k = 0; k < cols; ++k) dx[k] = lanes.mul(lanes.add(g[k], w, GRAD_DIFF, k), y[k], GRAD_OUT, k);
}

}  // namespace gemmsim::rows
