// This file computes matrix instructions of real chips on single elements. A step takes some products and the register
// c, and gives the next c. gemmsim/hardware/step_parameters.py defines the parameters.
#pragma once
#include <math.h>
#include "product/exact_registers.h"
#include "isa_table.h"

namespace gemmsim {

// The exponent that aligns a decoded operand. A subnormal has the exponent of its format's smallest normal number. A
// zero's exponent is so low that no product with it counts. Exponents of infinities and NaN are not used.
inline int hardware_exponent(double x, int emin) {
    if (x == 0) return ZERO_EXPONENT;
    const int e = is_nan(x) || is_inf(x) ? 0 : ilogb(x);
    return e < emin ? emin : e;
}

// The cast that converts a step's sum, where the conversion is a cast: HW_CAST, HW_CAST_INF, and binary32 for HW_RNE23.
inline Cast conversion(const HardwareModel& m, Cast add) {
    if (m.out == HW_CAST_INF) {
        add.over_pos = add.inf_pos;
        add.over_neg = add.inf_neg;
    }
    return add;
}

// One element with any operands, k ascending. For `kept` up to KEPT_IN_DOUBLE a double holds everything below exactly:
// products have at most 48 bits and sums at most 53.
struct HardwareDot {
    const HardwareModel& m;
    double c = 0;
    const Cast* to = nullptr;  // the cast of a conversion that is one

    struct Products {
        double value[64];
        int exponent[64];
        int count;
        bool nan, plus, minus;
    };

    template <class T> void step(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int count) {
        if (m.kind != HW_TWO_BLOCKS) return block(a, a_stride, b, b_stride, count, 0);
        const double addend = c;
        c = 0;
        for (int part = 0; part < 2; ++part) block(a, a_stride, b, b_stride, count, part);
        c = added(addend, c);
    }

    // Adds all products of a step, or those of one of its two blocks.
    template <class T> void block(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int count, int part) {
        Products p;
        p.count = 0;
        p.nan = is_nan(c);
        p.plus = is_inf(c) && c > 0;
        p.minus = is_inf(c) && c < 0;
        for (int i = 0; i < count; ++i) {
            if (m.kind == HW_TWO_BLOCKS && i % 4 / 2 != part) continue;
            const double x = (double)a[i * a_stride], y = (double)b[i * b_stride], q = x * y;
            if (is_nan(q)) p.nan = true;
            else if (is_inf(x) || is_inf(y)) (q > 0 ? p.plus : p.minus) = true;
            const int own = hardware_exponent(x, m.a_emin) + hardware_exponent(y, m.b_emin);
            p.exponent[p.count] = m.kind == HW_GROUPS && q != 0 ? 0 : own;
            p.value[p.count++] = q;
        }
        if (p.nan || (p.plus && p.minus)) c = canonical_nan();
        else if (p.plus || p.minus) c = infinite(p.plus);
        else if (m.kind == HW_FLOORED) floored(p);
        else fused(p);
    }

    static int largest(const Products& p, int first, int stride) {
        int e = LEAST_EXPONENT;
        for (int i = first; i < p.count; i += stride) e = p.exponent[i] > e ? p.exponent[i] : e;
        return e;
    }

    bool by_cast() const { return m.out >= HW_RNE23; }
    // Only RNE23 keeps the sign of a sum that is rounded to zero.
    double ended(double x) const { return m.out == HW_RNE23 ? x : x + 0.0; }
    double infinite(bool plus) const { return by_cast() ? plus ? to->inf_pos : to->inf_neg : plus ? INFINITY : -INFINITY; }
    int addend_exponent() const { return hardware_exponent(c, by_cast() ? to->emin : m.out == HW_RNE10 ? -14 : -126); }

    void fused(const Products& p) {
        int e = addend_exponent() < m.least ? m.least : addend_exponent();
        const int top = largest(p, 0, 1);
        e = top > e ? top : e;
        if (m.kept < 0) return exact_sum(p);
        if (m.kept > KEPT_IN_DOUBLE) return in_integers(p, e);
        double sum = trunc(ldexp(c, m.kept - e)), group = 0;
        for (int i = 0; i < p.count; ++i) {
            if (m.kind != HW_GROUPS) {
                sum += trunc(ldexp(p.value[i], m.kept - e));
                continue;
            }
            group += p.value[i];
            if (i % m.group == m.group - 1 || i == p.count - 1) {
                sum += trunc(ldexp(group, m.kept - e));
                group = 0;
            }
        }
        c = convert(ldexp(sum, e - m.kept));
    }

    // The same step where a double does not hold the sum.
    void in_integers(const Products& p, int e) {
        i128 sum = (i128)ldexp(c, m.kept - e);
        for (int i = 0; i < p.count; ++i) sum += (i128)ldexp(p.value[i], m.kept - e);
        c = ended(round_exact(Exact{(u128)(sum < 0 ? -sum : sum), e - m.kept, sum < 0, false}, *to, 0));
    }

    void exact_sum(const Products& p) {
        LongAccumulator sum;
        sum.clear();
        sum.add(exact_value(c));
        for (int i = 0; i < p.count; ++i) sum.add(exact_value(p.value[i]));
        c = ended(sum.round(*to, 0));
    }

    double truncated_sum(const Products& p, int first, int stride, int e) const {
        double sum = 0;
        for (int i = first; i < p.count; i += stride) sum += trunc(ldexp(p.value[i], m.kept - e));
        return sum;
    }

    void floored(const Products& p) {
        bool plus = false, minus = false;  // a finite product of 2^128 or more counts as infinite
        for (int i = 0; i < p.count; ++i)
            if (fabs(p.value[i]) >= ldexp(1.0, 128)) (p.value[i] > 0 ? plus : minus) = true;
        if (plus || minus) {
            c = plus && minus ? canonical_nan() : plus ? INFINITY : -INFINITY;
            return;
        }
        int e = largest(p, 0, 1);
        double total;
        if (m.halves) {
            const int even = largest(p, 0, 2), odd = largest(p, 1, 2);
            total = floor(ldexp(truncated_sum(p, 0, 2, even), even - e)) +
                    (p.count > 1 ? floor(ldexp(truncated_sum(p, 1, 2, odd), odd - e)) : 0);
        } else total = truncated_sum(p, 0, 1, e);
        const int own = addend_exponent() < m.least ? m.least : addend_exponent(), top = own > e ? own : e;
        total = floor(ldexp(total, m.total_bits - m.kept + e - top));
        double addend = floor(ldexp(c, m.addend_bits - top));
        if (m.window >= 0 && own < top - m.window) addend = 0;
        const double both = ldexp(total + ldexp(addend, m.total_bits - m.addend_bits), top - m.total_bits) + 0.0;
        const int keep = m.total_bits - 1 - (both == 0 || ilogb(both) < -126 ? -126 : ilogb(both));  // one bit less than the total has
        c = (double)(float)ldexp(floor(ldexp(both, keep)), -keep);
    }

    // The sum of two registers to nearest even. Where the format is binary16, the double sum is exact before it is
    // rounded.
    double added(double x, double y) const {
        const double sum = m.out == HW_RNE10 ? x + y : (double)((float)x + (float)y);
        if (is_nan(sum)) return canonical_nan();
        return m.out == HW_RNE10 && !is_inf(sum) ? convert(sum) : sum + 0.0;
    }

    // RZ23 and E8M13 round toward zero, to infinity past the largest finite value. RNE10 rounds to binary16, nearest
    // even. None of these gives -0.
    double convert(double v) const {
        if (v == 0) return 0;
        if (by_cast()) return ended(round_exact(exact_value(v), *to, 0));
        const int emin = m.out == HW_RNE10 ? -14 : -126, keep = m.out == HW_RNE10 ? 10 : m.out == HW_E8M13 ? 13 : 23;
        const int e = ilogb(v) < emin ? emin : ilogb(v);
        const double scaled = ldexp(v, keep - e), whole = m.out == HW_RNE10 ? nearbyint(scaled) : trunc(scaled), r = ldexp(whole, e - keep);
        if (fabs(r) >= (m.out == HW_RNE10 ? 65536.0 : ldexp(1.0, 128))) return r > 0 ? INFINITY : -INFINITY;
        return r + 0.0;
    }
};

// Marks the rows and columns of a tile whose operands hold a NaN or an infinity.
template <class T> struct NotFinite {
    bool row[MR], column[64];

    void check(const Tile& t, int nr) {
        for (int i = 0; i < t.rows; ++i) row[i] = row[i] || !finite((const T*)t.a + i, MR, t.k);
        for (int j = 0; j < t.cols; ++j) column[j] = column[j] || !finite((const T*)t.b + j, nr, t.k);
    }
    static bool finite(const T* x, int64_t stride, int64_t n) {
        T zero = 0;
        for (int64_t k = 0; k < n; ++k) zero += x[k * stride] * 0;
        return zero == 0;
    }
};

}  // namespace gemmsim
