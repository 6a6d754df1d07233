// The tile kernel that knows every format: one output at a time in exact integer arithmetic (gemmsim/exact.h).
#pragma once
#include "gemmsim/exact.h"
#include "gemmsim/philox.h"
#include "plan.h"

namespace gemmsim {

inline uint32_t step_bits(const Cast& c, const Tile& t, int row, int col, int64_t k, int site) {
    return c.mode >= SR ? draw_step(t.seed, t.row0 + row, t.col0 + col, (uint64_t)k, site, c.rbits) : 0;
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

template <class T> inline void scalar_tile(const Tile& t, const Request& r, int nr) {
    for (int i = 0; i < t.rows; ++i)
        for (int j = 0; j < t.cols; ++j) {
            T* c = (T*)t.c + i * nr + j;
            double s = (double)*c;
            for (int64_t k = 0; k < t.k; ++k) {
                const uint32_t rm = r.fused ? 0 : step_bits(r.mul, t, i, j, k, SITE_PRODUCT);
                const uint32_t ra = step_bits(r.add, t, i, j, k, SITE_ADD);
                s = scalar_step((double)((const T*)t.a)[k * MR + i], (double)((const T*)t.b)[k * nr + j], s, r, rm, ra);
            }
            *c = (T)s;
        }
}

}  // namespace gemmsim
