// The steps of row operations on single numbers, one row at a time, for every format. Host and device use it.
//
// A body (softmax.h, norm.h, reduce.h) is a template over such a class. VectorLanes (cpu/rows/rows_lanes.h) has the same members on
// vectors with a row in each lane, for formats that its rounding supports. Both give the same bits.
#pragma once
#include "gemmsim/philox.h"
#include "rows/double_approximations.h"

namespace gemmsim::rows {

// A rounding and the stream of its random bits (Philox). The element of a draw is its row-major index.
struct Step {
    Cast cast;
    int32_t site, way;  // way: how VectorLanes rounds to the cast
};

struct One {
    typedef double V;
    typedef uint64_t U;
    GEMMSIM_HD static V splat(double x) { return x; }
    GEMMSIM_HD static U unsigned_splat(uint64_t x) { return x; }
#if defined(__CUDACC_RTC__)
    GEMMSIM_HD static V fma(V a, V b, V c) { return __fma_rn(a, b, c); }
#else
    GEMMSIM_HD static V fma(V a, V b, V c) { return __builtin_fma(a, b, c); }
#endif
    GEMMSIM_HD static bool less(V a, V b) { return a < b; }
    GEMMSIM_HD static bool any(bool m) { return m; }
    GEMMSIM_HD static V choose(bool m, V a, V b) { return m ? a : b; }
    GEMMSIM_HD static U bits(V x) { return bits_of(x); }
    GEMMSIM_HD static V of(U x) { return double_of(x); }
    GEMMSIM_HD static U exponent(U x) { return (U)((int64_t)x >> 52); }
};

// cast(f(a, b)): the fast value if both ends of its interval round alike, otherwise the exact one.
GEMMSIM_HD double function_step(int f, double a, double b, const Cast& c, uint32_t R) {
    double y;
    if (exact_case(f, a, b, &y)) return round_value(y, c, R);
    const bool negative = f == POW && a < 0 && ((int64_t)(b < 0 ? -b : b) & 1) && (b < 0 ? -b : b) < 0x1p53;
    const double base = f == POW && a < 0 ? -a : a;
    const Approximation<One> q = approximate<One>(f, base, b);
    const double value = negative ? -q.value : q.value;
    const double low = round_value(value - q.error, c, R), high = round_value(value + q.error, c, R);
    if (bits_of(low) == bits_of(high)) return low;
    return rounded(f, negative ? a : base, b, c, R);
}

struct ScalarLanes {
    typedef double V;
    enum { COUNT = 1 };
    const Step* steps;
    uint64_t seed, row, cols;  // random bits of element k: index row * cols + k

    GEMMSIM_HD uint32_t draw(const Step& s, int64_t k) const {
        return s.cast.mode >= SR ? draw_element(seed, row * cols + (uint64_t)k, s.site, s.cast.rbits) : 0;
    }
    GEMMSIM_HD static V splat(double x) { return x; }
    GEMMSIM_HD static V negate(V x) { return -x; }
    GEMMSIM_HD static V larger(V a, V b) { return is_nan(a) || a > b ? a : b; }  // a NaN stays NaN
    GEMMSIM_HD V add(V a, V b, int step, int64_t k) const { return sum_step(a, b, steps[step].cast, draw(steps[step], k)); }
    GEMMSIM_HD V mul(V a, V b, int step, int64_t k) const { return product_step(a, b, steps[step].cast, draw(steps[step], k)); }
    GEMMSIM_HD V div(V a, V b, int step, int64_t k) const {
        const Step& s = steps[step];
        const double q = a / b;  // only its class matters
        if (is_nan(a) || is_nan(b) || is_inf(a) || is_inf(b) || a == 0 || b == 0) return round_value(q, s.cast, draw(s, k));
        return rounded(DIV, a, b, s.cast, draw(s, k));
    }
    GEMMSIM_HD V root(V a, int step, int64_t k) const {
        const Step& s = steps[step];
        if (a == 0 || is_nan(a) || (is_inf(a) && a > 0)) return round_value(a, s.cast, draw(s, k));
        if (a < 0) return canonical_nan();
        return rounded(SQRT, a, 0, s.cast, draw(s, k));
    }
    // Steps that occur once per row.
    GEMMSIM_HD V add_number(V a, double b, int step) const { return add(a, b, step, 0); }
    GEMMSIM_HD V div_once(V a, V b, int step) const { return div(a, b, step, 0); }
    GEMMSIM_HD V function(int f, V a, V b, int step, int64_t k) const {
        return function_step(f, a, b, steps[step].cast, draw(steps[step], k));
    }
    GEMMSIM_HD V round(V a, int step, int64_t k) const { return round_value(a, steps[step].cast, draw(steps[step], k)); }
};

}  // namespace gemmsim::rows
