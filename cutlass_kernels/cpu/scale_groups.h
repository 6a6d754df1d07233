// How totals meet scales on one tile, and the chain of block-scaled instructions on one element.
#pragma once
#include <string.h>
#include "gemmsim/philox.h"
#include "hardware_model.h"
#include "plan.h"
#include "scalar.h"
#include "scales.h"

namespace gemmsim {

inline const ScaleKernels& scale_kernels(const Isa& isa) {
#if defined(GEMMSIM_X86)
    if (!strcmp(isa.name, "avx512")) return scale_kernels_avx512();
    if (!strcmp(isa.name, "avx2")) return scale_kernels_avx2();
#endif
    (void)isa;
    return scale_kernels_baseline();
}

// Scales have at most eight bits each and lie between 2^-150 and 2^150: a product of two is exact in double.
inline int choose_scale_step(const Request& r, int carrier, bool narrow) {
    const Cast& c = r.wrappers[0].cast;
    const Cast& total = r.wrapper_count > 1 ? r.wrappers[1].cast : r.add;
    if (is_native(c, carrier) && (carrier == 1 || narrow)) return SCALE_NATIVE;
    const bool exact = carrier == 0 || (total.p <= 37 && total.emax <= 200 && total.emin - total.p >= -500);
    return exact && c.mode < SR && fits(c, 1, true) ? SCALE_WIDE : SCALE_SCALAR;
}

// Whether `times` of the kernels may round to this cast: no product comes near the ends of double's range.
inline bool times_wide(const Cast& c, int carrier) { return c.mode < SR && fits(c, 1, true) && (carrier == 0 || (c.emax <= 500 && c.emin - c.p >= -500)); }

// One total into one running total.
inline double scaled_sum(double s, double t, double xa, double xb, const Cast& c, uint32_t R) { return fused_step(xa * xb, t, s, c, R); }

// A chain of block-scaled instructions: the fields of HardwareDot's steps with the scales' significands and exponents.
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
            for (int i = first; i < first + size && i < count; ++i) {
                const double x = (double)a[i * a_stride], y = (double)b[i * b_stride], q = x * y;
                if (is_nan(q)) p.nan = true;
                else if (is_inf(q)) (q > 0 ? p.plus : p.minus) = true;
                sum += q;
                if (m.kind == HW_FUSED) e += hardware_exponent(x, m.a_emin) + hardware_exponent(y, m.b_emin);
            }
            if (is_nan(xa) || is_nan(xb)) p.nan = true;
            p.value[p.count] = sum * (xa * xb);
            p.exponent[p.count++] = e;
        }
        if (p.nan || (p.plus && p.minus)) dot.c = canonical_nan();
        else if (p.plus || p.minus) dot.c = p.plus ? INFINITY : -INFINITY;
        else add(p);
    }

    void add(const HardwareDot::Products& p) {
        const HardwareModel& m = dot.m;
        const int own = dot.addend_exponent(), top = HardwareDot::largest(p, 0, 1), e = top > own ? top : own;
        double sum = trunc(ldexp(dot.c, m.kept - e));
        for (int i = 0; i < p.count; ++i) sum += trunc(ldexp(p.value[i], m.kept - e));
        dot.c = dot.convert(ldexp(sum, e - m.kept));
    }
};

}  // namespace gemmsim
