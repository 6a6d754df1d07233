// This file adds scaled partial sums of one tile, and computes chains of block-scaled instructions on one element.
#pragma once
#include <string.h>
#include <vector>
#include "gemmsim/philox.h"
#include "compiled_isas.h"
#include "product/hardware_model.h"
#include "product/kernel_choice.h"
#include "product/scalar.h"
#include "product/scales.h"

namespace gemmsim {

inline const ScaleKernels& scale_kernels(const Isa& isa) {
    (void)isa;  // where one version alone is compiled
    return GEMMSIM_VERSION(scale_kernels, isa.name)();
}

// Scales have at most eight bits each and lie between 2^-150 and 2^150, so a product of two is exact in double.
inline int choose_scale_step(const Request& r, int carrier, bool narrow) {
    const Cast& c = r.wrappers[0].cast;
    const Cast& total = r.wrapper_count > 1 ? r.wrappers[1].cast : r.add;
    if (is_native(c, carrier) && (carrier == 1 || narrow)) return SCALE_NATIVE;
    const bool exact = carrier == 0 || (total.p <= 37 && total.emax <= 200 && total.emin - total.p >= -500);
    return exact && c.mode < SR && fits(c, 1, true) ? SCALE_WIDE : SCALE_SCALAR;
}

// Whether the kernels' `times` may round to this cast. No product then comes near the ends of double's range.
inline bool times_wide(const Cast& c, int carrier) {
    return c.mode < SR && fits(c, 1, true) && (carrier == 0 || (c.emax <= 500 && c.emin - c.p >= -500));
}

// Adds one scaled partial sum to a running sum.
inline double scaled_sum(double s, double t, double xa, double xb, const Cast& c, uint32_t R) { return fused_step(xa * xb, t, s, c, R); }

// A chain of block-scaled instructions. Its steps are those of HardwareDot with the significands and exponents of the
// scales.
struct ScaledDot {
    HardwareDot dot;
    const TileScales& scales;
    int row, col;

    int exponent(double x) const { return hardware_exponent(x, scales.all->emin); }

    template <class T> void step(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t k, int count) {
        const HardwareModel& m = dot.m;
        HardwareDot::Products p;
        p.nan = is_nan(dot.c);
        p.plus = is_inf(dot.c) && dot.c > 0;
        p.minus = is_inf(dot.c) && dot.c < 0;
        const int size = m.kind == HW_GROUPS ? m.group : 1, terms = m.kind == HW_GROUPS ? m.products : count;
        p.count = 0;
        for (int first = 0; first < terms; first += size) {
            const double xa = fabs(scales.left(row, k + first)), xb = fabs(scales.right(col, k + first));
            double sum = 0;
            int e = exponent(xa) + exponent(xb);
            bool zero = true;
            for (int i = first; i < first + size && i < count; ++i) {
                const double x = (double)a[i * a_stride], y = (double)b[i * b_stride], q = x * y;
                if (is_nan(q)) p.nan = true;
                else if (is_inf(q)) (q > 0 ? p.plus : p.minus) = true;
                sum += q;
                zero = zero && q == 0;
                if (m.kind == HW_FUSED) e += hardware_exponent(x, m.a_emin) + hardware_exponent(y, m.b_emin);
            }
            if (is_nan(xa) || is_nan(xb)) p.nan = true;
            p.value[p.count] = sum * (xa * xb);
            p.exponent[p.count++] = zero ? ZERO_EXPONENT : e;
        }
        if (p.nan || (p.plus && p.minus)) dot.c = canonical_nan();
        else if (p.plus || p.minus) dot.c = p.plus ? INFINITY : -INFINITY;
        else add(p);
    }

    void add(const HardwareDot::Products& p) {
        const HardwareModel& m = dot.m;
        int e = dot.addend_exponent() < m.least ? m.least : dot.addend_exponent();
        for (int i = 0; i < p.count; ++i) e = p.exponent[i] > e ? p.exponent[i] : e;
        double sum = trunc(ldexp(dot.c, m.kept - e));
        for (int i = 0; i < p.count; ++i) sum += trunc(ldexp(p.value[i], m.kept - e));
        dot.c = dot.convert(ldexp(sum, e - m.kept));
    }
};

// What the vector kernel of block-scaled instructions reads: the scales of all groups of one tile, and which are NaN.
struct TileGroups {
    std::vector<double> a, b;
    std::vector<int32_t> a_exponent, b_exponent;
    bool nan_row[MR] = {}, nan_col[64] = {};
    int64_t size;

    // Whether the vector kernel applies. Each group must lie in one block of each operand. Without groups the scales of
    // a step must be powers of two.
    static bool fits(const HardwareModel& m, const Scales& s) {
        const int64_t size = m.kind == HW_GROUPS ? m.group : m.products;
        return m.out == HW_RZ23 && s.a_size % size == 0 && s.b_size % size == 0 &&
               (m.kind == HW_GROUPS || (m.kind == HW_FUSED && s.emin == -127 && m.kept <= 25));
    }

    TileGroups(const TileScales& s, const HardwareModel& m, const Tile& t, int nr) : size(m.kind == HW_GROUPS ? m.group : m.products) {
        const Scales& x = *s.all;
        const int64_t groups = (t.k + m.products - 1) / m.products * (m.products / size);
        a.assign((size_t)(groups * MR), 1.0);
        b.assign((size_t)(groups * nr), 1.0);
        a_exponent.assign((size_t)(groups * MR), 0);
        b_exponent.assign((size_t)(groups * nr), 0);
        for (int64_t g = 0; g < groups; ++g) {
            const int64_t at = t.k0 + g * size, left = at / x.a_size, right = at / x.b_size;
            line(left < x.a_count ? s.a + left * x.a_block : &x.fill, left < x.a_count ? x.a_row : 0, t.rows, x.emin, &a[(size_t)(g * MR)],
                 &a_exponent[(size_t)(g * MR)], nan_row);
            line(right < x.b_count ? s.b + right * x.b_block : &x.fill, right < x.b_count ? x.b_col : 0, t.cols, x.emin,
                 &b[(size_t)(g * nr)], &b_exponent[(size_t)(g * nr)], nan_col);
        }
    }

    static void line(const double* x, int64_t stride, int n, int emin, double* value, int32_t* exponent, bool* nan) {
        for (int i = 0; i < n; ++i) {
            const double v = fabs(x[i * stride]);
            if (v != v) {
                nan[i] = true;
                continue;
            }
            uint64_t u;
            memcpy(&u, &v, 8);
            const int e = (int)(u >> 52) - 1023;  // no scale is subnormal in double
            value[i] = v;
            exponent[i] = v == 0 ? ZERO_EXPONENT : e < emin ? emin : e;
        }
    }

    GroupScales all() const { return GroupScales{a.data(), b.data(), a_exponent.data(), b_exponent.data(), size}; }
};

}  // namespace gemmsim
