// This file computes row operations of one ISA. It gathers rows into lanes, runs the bodies of cutlass_kernels/rows,
// and stores the results.
#include "rows/rows_lanes.h"
#include "rows/rows_narrow.h"
#include "rows/norm.h"
#include "rows/softmax.h"

namespace gemmsim {
namespace NS {

using rows::ScalarLanes;

// Reads `n` numbers of a tensor as doubles, `step` apart in `to`; put() writes them back. NaN is stored as the
// canonical NaN.
static void fetch(const void* from, int dtype, int64_t at, int64_t n, double* to, int64_t step) {
    if (dtype == F64)
        for (int64_t i = 0; i < n; ++i) to[i * step] = ((const double*)from)[at + i];
    else
        for (int64_t i = 0; i < n; ++i) to[i * step] = (double)((const float*)from)[at + i];
}
static void put(const double* from, int64_t step, void* to, int dtype, int64_t at, int64_t n) {
    if (dtype == F64) {
        for (int64_t i = 0; i < n; ++i) ((double*)to)[at + i] = is_nan(from[i * step]) ? canonical_nan() : from[i * step];
    } else {
        for (int64_t i = 0; i < n; ++i) ((float*)to)[at + i] = (float)(is_nan(from[i * step]) ? canonical_nan() : from[i * step]);
    }
}

template <class L> struct Group {
    typedef typename L::V V;
    const RowArgs& a;
    int64_t first;
    int live;  // rows in use, at most L::COUNT

    void gather(const void* p, V* v) const {
        double* const d = (double*)v;
        if (live < (int)L::COUNT) memset(d, 0, (size_t)a.cols * sizeof(V));
        for (int i = 0; i < live; ++i) fetch(p, a.dtype, (first + i) * a.cols, a.cols, d + i, L::COUNT);
    }
    void scatter(const V* v, void* p) const {
        for (int i = 0; i < live; ++i) put((const double*)v + i, L::COUNT, p, a.dtype, (first + i) * a.cols, a.cols);
    }
    V gather_rows(const void* p) const {
        V v = {};
        fetch(p, a.dtype, first, live, (double*)&v, 1);
        return v;
    }
    void scatter_rows(V v, void* p) const { put((const double*)&v, 1, p, a.dtype, first, live); }
    const V* gather_cols(const void* p, V* v) const {
        if (!p) return nullptr;
        for (int64_t k = 0; k < a.cols; ++k) {
            double x;
            fetch(p, a.dtype, k, 1, &x, 1);
            v[k] = L::splat(x);
        }
        return v;
    }
};

template <class L> static void run_group(const L& lanes, const Group<L>& g, typename L::V* x, typename L::V* w, typename L::V* b) {
    typedef typename L::V V;
    const RowArgs& a = g.a;
    V *y = b + a.cols, *t = y + a.cols;
    g.gather(a.in[0], x);
    if (a.op == ROW_SUM) return g.scatter_rows(rows::ordered_sum(lanes, a.cols, a.order, 0, [&](int64_t k) { return x[k]; }), a.out[0]);
    if (a.op == SOFTMAX || a.op == LOG_SOFTMAX) {
        if (a.op == SOFTMAX) rows::softmax_row(lanes, x, x, a.cols, a.order);
        else rows::log_softmax_row(lanes, x, x, a.cols);
        return g.scatter(x, a.out[0]);
    }
    if (a.op == SOFTMAX_GRAD) {
        g.gather(a.in[1], y);
        rows::softmax_grad_row(lanes, x, y, t, a.cols, a.order);
        return g.scatter(t, a.out[0]);
    }
    if (a.op == NORM) {
        rows::NormRow<V> r = {x, w, a.in[2] ? b : nullptr, x, V{}, V{}, a.eps, a.centered != 0};
        if (!a.in[1]) r.weight = nullptr;
        rows::norm_row(lanes, r, a.cols, a.order);
        g.scatter(r.y, a.out[0]);
        g.scatter_rows(r.mean, a.out[1]);
        return g.scatter_rows(r.rstd, a.out[2]);
    }
    g.gather(a.in[4], y);
    rows::NormGradRow<V> r = {x, y, a.in[1] ? w : nullptr, t, y, g.gather_rows(a.in[2]), g.gather_rows(a.in[3]), a.centered != 0};
    rows::norm_grad_row(lanes, r, a.cols, a.order);
    g.scatter(t, a.out[0]);
    g.scatter(y, a.out[1]);
}

template <class L> static void run_rows(L lanes, const RowArgs& a, int64_t first, int64_t count, char* work) {
    typedef typename L::V V;
    V* x = (V*)(((uintptr_t)work + 63) / 64 * 64);
    V *w = x + a.cols, *b = w + a.cols;
    Group<L> g = {a, first, 0};
    if (a.op == NORM || a.op == NORM_GRAD) g.gather_cols(a.in[1], w);
    if (a.op == NORM) g.gather_cols(a.in[2], b);
    lanes.cols = (uint64_t)a.cols;
    if (a.order > 1) lanes.cols += (uint64_t)a.order;  // the order's combining additions draw too
    for (int64_t i = 0; i < count; i += L::COUNT) {
        g.first = lanes.row = (uint64_t)(first + i);
        g.live = (int)(count - i < (int64_t)L::COUNT ? count - i : (int64_t)L::COUNT);
        run_group(lanes, g, x, w, b);
    }
}

template <class L> static typename L::V apply(const L& lanes, int f, typename L::V a, typename L::V b) {
    switch (f) {
        case rows::ADD: return lanes.add(a, b, 0, 0);
        case rows::SUB: return lanes.add(a, L::negate(b), 0, 0);
        case rows::MUL: return lanes.mul(a, b, 0, 0);
        case rows::DIV: return lanes.div(a, b, 0, 0);
        case rows::SQRT: return lanes.root(a, 0, 0);
        case rows::MAX: return lanes.round(L::larger(a, b), 0, 0);
        case rows::COPY: return lanes.round(a, 0, 0);
        default: return lanes.function(f, a, b, 0, 0);
    }
}

// Applies a function to elements. Each element is a row of one column here.
template <class L> static void run_map(L lanes, const RowArgs& a, int64_t first, int64_t count) {
    typedef typename L::V V;
    enum { BLOCK = 256 };
    V x[BLOCK / L::COUNT], y[BLOCK / L::COUNT];
    for (int64_t k = 0; k < BLOCK / L::COUNT; ++k) x[k] = y[k] = L::splat(1.0);
    lanes.cols = 1;
    for (int64_t i = 0; i < count; i += BLOCK) {
        const int64_t live = count - i < BLOCK ? count - i : (int64_t)BLOCK;
        fetch(a.in[0], a.dtype, first + i, live, (double*)x, 1);
        if (a.in[1]) fetch(a.in[1], a.dtype, first + i, live, (double*)y, 1);
        for (int64_t k = 0; k * L::COUNT < live; ++k) {
            lanes.row = (uint64_t)(first + i + k * L::COUNT);
            x[k] = apply(lanes, a.function, x[k], y[k]);
        }
        put((const double*)x, 1, a.out[0], a.dtype, first + i, live);
    }
}

// Whether vectors support the step's rounding (rows_lanes.h). If so, sets the step's way.
static bool vector_way(rows::Step& s) {
    const Cast& c = s.cast;
    const int bits = c.p + (c.mode >= SR ? c.rbits + 1 : 0);
    if (bits > 50 || c.emax > 127 || c.emin - c.p + 1 < -149 || !(c.lo >= -0x1p128) || !(c.hi <= 0x1p128)) return false;
    const bool plain = c.mode == RNE && !(c.flags & (NO_SUBNORMALS | CODE_PARITY | NO_ZERO));
    s.way = ROW_SINGLE;
    if (!vector_can<C64>(c)) return true;
    s.way = c.mode == SR ? ROW_RANDOM : plain ? ROW_NEAREST : ROW_BITS;
    if (plain && c.p == 24 && c.emin == -126 && c.emax == 127 && __builtin_isinf(c.over_pos) && __builtin_isinf(c.inf_pos))
        s.way = ROW_FLOAT;
    return true;
}

// Computes rows in float lanes where steps and data allow it, else in double lanes.
static void run_groups(const VectorLanes& lanes, const RowArgs& a, int64_t first, int64_t count, char* work) {
    NarrowSteps narrow;
    narrow_steps(a, &narrow);
    if (!narrow.can) return run_rows(lanes, a, first, count, work);
    for (int64_t i = 0; i < count; i += C32::L) {
        const int live = (int)(count - i < (int64_t)C32::L ? count - i : (int64_t)C32::L);
        if (!narrow_group(a, narrow, lanes, first + i, live, work)) run_rows(lanes, a, first + i, live, work);
    }
}

static void run(const RowArgs& a, int64_t first, int64_t count, char* work) {
    rows::Step steps[ROW_STEPS];
    Const<C64> consts[ROW_STEPS];
    bool vector = a.dtype == F32;
    for (int i = 0; i < ROW_STEPS; ++i) {
        steps[i] = a.steps[i];
        if (!(steps[i].cast.flags & PRESENT)) continue;
        vector = vector && vector_way(steps[i]);
        if (vector) consts[i] = Const<C64>::make(steps[i].cast);
    }
    if (vector) {
        const VectorLanes lanes = {steps, consts, a.seed, 0, 0};
        if (a.op == ROW_MAP) run_map(lanes, a, first, count);
        else run_groups(lanes, a, first, count, work);
    } else {
        const ScalarLanes lanes = {steps, a.seed, 0, 0};
        if (a.op == ROW_MAP) run_map(lanes, a, first, count);
        else run_rows(lanes, a, first, count, work);
    }
}

}  // namespace NS

RowFn ROWS_GETTER() { return NS::run; }

}  // namespace gemmsim
