// The step of a chip's matrix instruction: it takes some products and the register c and gives the next c.
// gemmsim/hardware/step_parameters.py defines the parameters. Products are exact in double. Sums of up to 64 of them and the
// register, truncated at most KEPT_IN_DOUBLE bits below the largest, are computed in double and int64. Other sums take integers of
// 128 bits or LongSum.
#pragma once
#include "gemmsim/device/long_sum.h"
#include "gemmsim/device/step.h"
#include "gemmsim/program.h"

namespace gemmsim {

// The exponent that aligns a decoded operand. A subnormal has the exponent of its own format's smallest normal number. A product
// with a zero does not count.
GEMMSIM_HD int hardware_exponent(float x, int emin) {
    const int e = (int)(to_bits(x) >> 23 & 255u) - 127;
    return x == 0 ? ZERO_EXPONENT : e < emin ? emin : e;
}

GEMMSIM_HD int exponent_of(double x) { return (int)(to_bits(x) >> 52 & 0x7FFu) - 1023; }  // normal numbers
GEMMSIM_HD double times_power(double x, int e) { return mul_rn(x, from_bits<double>((uint64_t)(e + 1023) << 52)); }
GEMMSIM_HD int64_t cut(double x) { return (int64_t)x; }
GEMMSIM_HD int64_t down(double x) {
    const int64_t i = (int64_t)x;
    return (double)i > x ? i - 1 : i;
}

constexpr int KEPT_IN_DOUBLE = 44;
template <bool WIDE> struct CutSum {
    typedef int64_t type;
};
template <> struct CutSum<true> {
    typedef __int128 type;
};

// This code is long, so a kernel contains one copy of each function.
template <Cast C> GEMMSIM_CALL double rounded(Exact x) { return round_exact(x, C, 0); }
template <Cast C> GEMMSIM_CALL double rounded(LongSum<float>& x) { return x.round(C, 0); }

// One step with the products that exist; the missing ones are zeros. ADD: the cast of HW_CAST and HW_CAST_INF, and binary32 for
// HW_RNE23.
template <HardwareModel M, Cast ADD, class OPERANDS> struct HardwareStep {
    static constexpr bool BY_CAST = M.out >= HW_RNE23;  // to the cast, or to binary32 to nearest even
    static constexpr int EMIN = BY_CAST ? ADD.emin : M.out == HW_RNE10 ? -14 : -126;  // of the register's format
    static constexpr Cast conversion() {
        Cast to = ADD;
        if (M.out == HW_CAST_INF) {
            to.over_pos = to.inf_pos;
            to.over_neg = to.inf_neg;
        }
        return to;
    }
    static constexpr Cast TO = conversion();

    const OPERANDS& o;
    const int count;
    const bool plain;  // no product is infinite, NaN or as large as 2^127
    float c;

    GEMMSIM_HD void run() {
        if constexpr (M.kind == HW_TREE) tree();
        else if constexpr (M.kind == HW_TWO_BLOCKS) {
            const float addend = c;
            c = 0;
            general<0>();
            general<1>();
            c = added(addend, c);
        } else general<0>();
    }

    // The products of a block: all that exist, or those of one of two blocks.
    template <int PART> static GEMMSIM_HD int at(int i) { return M.kind == HW_TWO_BLOCKS ? in_block(PART, i) : i; }
    template <int PART> GEMMSIM_HD int terms() const {
        if (M.kind != HW_TWO_BLOCKS) return count;
        const int rest = count % 4 - 2 * PART;
        return count / 4 * 2 + (rest < 0 ? 0 : rest < 2 ? rest : 2);
    }
    GEMMSIM_HD double product(int i) const { return mul_rn((double)o.x(i), (double)o.y(i)); }
    GEMMSIM_HD int exponent(int i) const { return hardware_exponent(o.x(i), M.a_emin) + hardware_exponent(o.y(i), M.b_emin); }
    GEMMSIM_HD int addend_exponent() const { return hardware_exponent(c, EMIN); }
    GEMMSIM_HD int largest(int first, int stride) const {
        int e = LEAST_EXPONENT;
        GEMMSIM_NO_UNROLL for (int i = first; i < count; i += stride) e = exponent(i) > e ? exponent(i) : e;
        return e;
    }

    template <int PART> GEMMSIM_HD void general() {
        const float inf = from_bits<float>(0x7F800000u);
        bool nan = c != c, plus = c == inf, minus = c == -inf;
        GEMMSIM_NO_UNROLL for (int i = 0; i < (plain ? 0 : terms<PART>()); ++i) {
            const double q = product(at<PART>(i)), most = M.kind == HW_FLOORED ? 0x1p128 : number(0x7FFull << 52);
            if (q != q) nan = true;
            else if (q >= most) plus = true;  // of a floored sum also a finite product of 2^128 or more
            else if (-q >= most) minus = true;
        }
        if (nan || (plus && minus)) c = quiet_nan<float>();
        else if (plus || minus) {
            if constexpr (BY_CAST) {
                constexpr double above = TO.inf_pos, below = TO.inf_neg;
                c = (float)(plus ? above : below);
            } else c = plus ? inf : -inf;
        } else if constexpr (M.kind == HW_FLOORED) floored();
        else if constexpr (M.kept < 0) uncut();
        else if constexpr (M.kind == HW_GROUPS) groups();
        else fused<PART>();
    }

    template <int PART> GEMMSIM_HD void fused() {
        int e = M.least > addend_exponent() ? M.least : addend_exponent();
        GEMMSIM_NO_UNROLL for (int i = 0; i < terms<PART>(); ++i) {
            const int top = exponent(at<PART>(i));
            e = top > e ? top : e;
        }
        typedef typename CutSum<(M.kept > KEPT_IN_DOUBLE)>::type Integer;
        Integer sum = cut(times_power((double)c, M.kept - e));
        GEMMSIM_NO_UNROLL for (int i = 0; i < terms<PART>(); ++i) sum += cut(times_power(product(at<PART>(i)), M.kept - e));
        if constexpr (M.kept > KEPT_IN_DOUBLE)
            c = add_rn((float)rounded<TO>(Exact{(u128)(sum < 0 ? -sum : sum), e - M.kept, sum < 0, false}), 0.0f);
        else c = convert(times_power((double)sum, e - M.kept));
    }

    // Adds exact sums of groups, all of exponent 0. A group of zero products does not count.
    GEMMSIM_HD void groups() {
        int e = M.least > addend_exponent() ? M.least : addend_exponent();
        GEMMSIM_NO_UNROLL for (int i = 0; i < count; ++i) e = e < 0 && product(i) != 0 ? 0 : e;
        int64_t sum = cut(times_power((double)c, M.kept - e));
        GEMMSIM_NO_UNROLL for (int first = 0; first < count; first += M.group) {
            double group = 0;
            GEMMSIM_NO_UNROLL for (int i = first; i < first + M.group && i < count; ++i) group = add_rn(group, product(i));
            sum += cut(times_power(group, M.kept - e));
        }
        c = convert(times_power((double)sum, e - M.kept));
    }

    // Adds everything exactly, without truncation.
    GEMMSIM_HD void uncut() {
        LongSum<float> sum;
        sum.clear();
        sum.add((double)c, 1.0);
        GEMMSIM_NO_UNROLL for (int i = 0; i < count; ++i) sum.add((double)o.x(i), (double)o.y(i));
        const double r = rounded<TO>(sum);
        c = M.out == HW_RNE23 ? (float)r : add_rn((float)r, 0.0f);
    }

    GEMMSIM_HD int64_t cut_sum(int first, int stride, int e) const {
        int64_t sum = 0;
        GEMMSIM_NO_UNROLL for (int i = first; i < count; i += stride) sum += cut(times_power(product(i), M.kept - e));
        return sum;
    }

    // Zero products do not count. A zero register has the exponent of subnormals. The result is floored total_bits - 1 bits below
    // its own exponent, one bit less than the total has.
    GEMMSIM_HD void floored() {
        const int e = largest(0, 1);
        double total;
        if constexpr (M.halves != 0) {
            const int even = largest(0, 2), odd = largest(1, 2);
            total = (double)down(times_power((double)cut_sum(0, 2, even), even - e));
            if (count > 1) total = add_rn(total, (double)down(times_power((double)cut_sum(1, 2, odd), odd - e)));
        } else total = (double)cut_sum(0, 1, e);
        const int own = addend_exponent() < M.least ? M.least : addend_exponent(), top = own > e ? own : e;
        const int64_t sum = down(times_power(total, M.total_bits - M.kept + e - top));
        int64_t addend = down(times_power((double)c, M.addend_bits - top));
        if (M.window >= 0 && own < top - M.window) addend = 0;
        const double both = times_power((double)(sum + addend * ((int64_t)1 << (M.total_bits - M.addend_bits))), top - M.total_bits);
        const int keep = M.total_bits - 1 - (both == 0 || exponent_of(both) < -126 ? -126 : exponent_of(both));
        c = (float)times_power((double)down(times_power(both, keep)), -keep);
    }

    // rz23 and e8m13 round toward zero, with infinity past the largest finite value. rne10 is binary16 to nearest even. No result
    // is -0.
    static GEMMSIM_HD float convert(double v) {
        if (v == 0) return 0;
        if constexpr (BY_CAST) return add_rn((float)rounded<TO>(exact_value(v)), 0.0f);
        constexpr int emin = EMIN, keep = M.out == HW_RNE10 ? 10 : M.out == HW_E8M13 ? 13 : 23;
        const int e = exponent_of(v) < emin ? emin : exponent_of(v);
        const double scaled = times_power(v, keep - e), magic = 0x1.8p52;
        const double whole = M.out == HW_RNE10 ? add_rn(add_rn(scaled, magic), -magic) : (double)cut(scaled);
        const double r = times_power(whole, e - keep), mag = r < 0 ? -r : r;
        if (mag >= (M.out == HW_RNE10 ? 65536.0 : 0x1p128)) return from_bits<float>(r > 0 ? 0x7F800000u : 0xFF800000u);
        return add_rn((float)r, 0.0f);
    }

    // Adds two numbers of the register's format and rounds to nearest even. For binary16 the sum is exact in double.
    static GEMMSIM_HD float added(float x, float y) {
        if constexpr (M.out != HW_RNE10) return add_rn(add_rn(x, y), 0.0f);
        const float inf = from_bits<float>(0x7F800000u);
        if (x - x != 0 || y - y != 0) return x != x || y != y || x == -y ? quiet_nan<float>() : x == inf || x == -inf ? x : y;
        return convert(add_rn((double)x, (double)y));
    }

    static GEMMSIM_HD float flushed(float v, float least, uint32_t keep) {
        const float mag = from_bits<float>(to_bits(v) & 0x7FFFFFFFu);
        return mag < least ? from_bits<float>(to_bits(v) & keep) : v;
    }
    static GEMMSIM_HD float settle(float v) { return flushed(v, 0x1p-126f, 0x80000000u); }
    GEMMSIM_HD float tree_product(int i) const {
        const float a = i < count ? o.x(i) : 0.0f, b = i < count ? o.y(i) : 0.0f;
        return settle(fma_rn(flushed(a, power<float>(M.a_emin), 0), flushed(b, power<float>(M.b_emin), 0), 0.0f));
    }
    // Adds +0 to each product, then adds adjacent pairs, then the register. The operations are binary32 to nearest, with subnormals
    // flushed to zero.
    GEMMSIM_HD void tree() {
        float total = settle(add_rn(tree_product(0), tree_product(1)));
        if constexpr (M.products == 4) total = settle(add_rn(total, settle(add_rn(tree_product(2), tree_product(3)))));
        c = settle(add_rn(flushed(c, 0x1p-126f, 0), total));
    }
};

// The operands of a step whose terms come from several chunks or segments.
template <int N> struct HeldOperands {
    float a[N], b[N];

    GEMMSIM_HD float x(int i) const { return a[i]; }
    GEMMSIM_HD float y(int i) const { return b[i]; }
};

}  // namespace gemmsim
