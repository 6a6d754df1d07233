// This tile kernel supports every format. It computes one output at a time in exact integer arithmetic
// (gemmsim/exact.h).
#pragma once
#include "gemmsim/exact.h"
#include "gemmsim/philox.h"
#include "product/parts.h"

namespace gemmsim {

inline uint32_t step_bits(const Cast& c, const Tile& t, int row, int col, int64_t k, int site) {
    return c.mode >= SR ? draw_step(t.seed, t.row0 + row, t.col0 + col, (uint64_t)k, site, c.rbits) : 0;
}

// R(s + x). If not `exact`, R rounds the fp32 sum.
inline double sum_of(double s, double x, const Cast& c, uint32_t R, bool exact) {
    return exact ? sum_step(x, s, c, R) : round_value((double)((float)s + (float)x), c, R);
}

inline double scalar_step(double a, double b, double s, const Request& r, uint32_t rm, uint32_t ra) {
    if (r.arithmetic == FP32) {
        if (r.fused) return round_value((double)__builtin_fmaf((float)a, (float)b, (float)s), r.add, ra);
        const double q = round_value((double)((float)a * (float)b), r.mul, rm);
        return round_value((double)((float)s + (float)q), r.add, ra);
    }
    if (r.fused) return fused_step(a, b, s, r.add, ra);
    return sum_step(product_step(a, b, r.mul, rm), s, r.add, ra);
}

// A term's factors for an element.
template <class T> inline double left_of(const Tile& t, int64_t k, int i) { return (double)((const T*)t.a)[k * MR + i]; }
template <class T> inline double right_of(const Tile& t, int64_t k, int j, int nr) { return (double)((const T*)t.b)[k * nr + j]; }

template <class T> inline void scalar_tile(const Parts<T>& parts, const Request& r, int nr) {
    for (int i = 0; i < parts.base().rows; ++i)
        for (int j = 0; j < parts.base().cols; ++j) {
            double s = (double)parts.out[i * nr + j];
            parts.each_term([&](const Tile& t, int64_t k) {
                const int64_t at = t.index(k);
                const uint32_t rm = r.fused ? 0 : step_bits(r.mul, t, i, j, at, SITE_PRODUCT);
                const uint32_t ra = step_bits(r.add, t, i, j, at, SITE_ADD);
                s = scalar_step(left_of<T>(t, k, i), right_of<T>(t, k, j, nr), s, r, rm, ra);
            });
            parts.out[i * nr + j] = (T)s;
        }
}

// One element of a compensated sum (formulas: tiles/compensated/compensated_step.h). Operation j of a step draws in
// stream SITE_STEP + j.
struct CompensatedDot {
    const Request& r;
    const Tile& t;
    int i, j;
    int64_t at = 0;  // k of the step

    uint32_t bits(int site) const { return step_bits(r.add, t, i, j, at, site); }
    double add(double x, double y, int site) const {
        if (r.arithmetic == FP32) return round_value((double)((float)x + (float)y), r.add, bits(site));
        return sum_step(x, y, r.add, bits(site));
    }
    double product(double a, double b, const Cast& c, uint32_t R) const {
        return r.arithmetic == FP32 ? round_value((double)((float)a * (float)b), c, R) : product_step(a, b, c, R);
    }

    void step(double a, double b, double& s, double& c) const {
        const int o = SITE_STEP;
        double q = 0;
        if (!r.fused) q = product(a, b, r.mul, step_bits(r.mul, t, i, j, at, SITE_PRODUCT));
        if (r.method == KAHAN) {
            const double y = r.fused ? scalar_step(a, b, -c, r, 0, bits(o)) : add(q, -c, o);
            const double u = add(s, y, o + 1);
            c = add(add(u, -s, o + 2), -y, o + 3);
            s = u;
            return;
        }
        const double x = r.fused ? product(a, b, r.add, bits(o)) : round_value(q, r.add, bits(o)), u = add(s, x, o + 1);
        if (r.method == NEUMAIER) {
            const bool larger = !(__builtin_fabs(s) < __builtin_fabs(x));
            c = add(c, add(add(larger ? s : x, -u, o + 2), larger ? x : s, o + 3), o + 4);
        } else if (r.method == TWO_SUM) {
            const double z = add(u, -s, o + 2);
            const double lost = add(s, -add(u, -z, o + 3), o + 4), rest = add(x, -z, o + 5);
            c = add(c, add(lost, rest, o + 6), o + 7);
        } else {
            const double moved = add(u, -s, o + 2);
            c = add(c, add(x, -moved, o + 3), o + 4);
        }
        s = u;
    }
};

template <class T> inline void scalar_compensated(const Parts<T>& parts, const Request& r, int nr) {
    for (int i = 0; i < parts.base().rows; ++i)
        for (int j = 0; j < parts.base().cols; ++j) {
            CompensatedDot dot = {r, parts.base(), i, j};
            double s = 0, c = 0;
            parts.each_term([&](const Tile& t, int64_t k) {
                dot.at = t.index(k);
                dot.step(left_of<T>(t, k, i), right_of<T>(t, k, j, nr), s, c);
            });
            parts.out[i * nr + j] = (T)(r.method == KAHAN || parts.count() == 0 ? s : dot.add(s, c, SITE_FINAL));
        }
}

template <class T> inline void scalar_run(const Parts<T>& parts, const Request& r, int nr) {
    if (r.method) scalar_compensated<T>(parts, r, nr);
    else scalar_tile<T>(parts, r, nr);
}

}  // namespace gemmsim
