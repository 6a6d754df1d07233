// Runs of a chip's matrix instruction: a step takes some products and the register c and gives the next c. What the
// parameters mean: gemmsim/hardware/models.py. Products are exact in double; sums of up to 64 of them and the register, cut at
// most KEPT_IN_DOUBLE bits below the largest, in double and int64. Beyond that are integers of 128 bits, and long sums.
#pragma once
#include "gemm/long_sum.h"
#include "gemm/stream.h"

namespace gemmsim {

// What decides the exponent of a decoded operand: a zero's is that of the smallest normal binary32, a subnormal's that of
// the smallest normal of its own format.
GEMMSIM_HD int hardware_exponent(float x, int emin) {
    const int e = (int)(to_bits(x) >> 23 & 255u) - 127;
    return x == 0 ? -126 : e < emin ? emin : e;
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

// Long code, one copy of each.
template <Cast C> GEMMSIM_CALL double rounded(Exact x) { return round_exact(x, C, 0); }
template <Cast C> GEMMSIM_CALL double rounded(LongSum<float>& x) { return x.round(C, 0); }

// Operands of a step, side by side in shared memory: `a` and `b` point at an output's first, the next ones lie a pitch apart.
template <class T> struct StepOperands {
    const T *a, *b;
    int pitch_a, pitch_b;

    GEMMSIM_HD float x(int i) const { return (float)a[i * pitch_a]; }
    GEMMSIM_HD float y(int i) const { return (float)b[i * pitch_b]; }
};

// One step with the products there are; the others are zeros. ADD: the cast of HW_CAST and HW_CAST_INF.
template <HardwareModel M, Cast ADD, class OPERANDS> struct HardwareStep {
    static constexpr bool BY_CAST = M.out >= HW_CAST;
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
        else general();
    }

    GEMMSIM_HD double product(int i) const { return mul_rn((double)o.x(i), (double)o.y(i)); }
    GEMMSIM_HD int exponent(int i) const {
        return M.kind == HW_GROUPS ? 0 : hardware_exponent(o.x(i), M.a_emin) + hardware_exponent(o.y(i), M.b_emin);
    }
    GEMMSIM_HD int addend_exponent() const { return hardware_exponent(c, EMIN); }
    GEMMSIM_HD int largest(int first, int stride) const {
        int e = -1000;
        GEMMSIM_NO_UNROLL for (int i = first; i < count; i += stride) e = exponent(i) > e ? exponent(i) : e;
        return e;
    }

    GEMMSIM_HD void general() {
        const float inf = from_bits<float>(0x7F800000u);
        bool nan = c != c, plus = c == inf, minus = c == -inf;
        GEMMSIM_NO_UNROLL for (int i = 0; i < (plain ? 0 : count); ++i) {
            const double q = product(i), most = M.kind == HW_FLOORED ? 0x1p128 : number(0x7FFull << 52);
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
        else fused();
    }

    GEMMSIM_HD void fused() {
        int e = addend_exponent();
        const int top = M.kind == HW_GROUPS ? 0 : largest(0, 1);
        e = top > e ? top : e;
        typedef typename CutSum<(M.kept > KEPT_IN_DOUBLE)>::type Integer;
        Integer sum = cut(times_power((double)c, M.kept - e));
        double group = 0;
        GEMMSIM_NO_UNROLL for (int i = 0; i < count; ++i) {
            if constexpr (M.kind == HW_FUSED) sum += cut(times_power(product(i), M.kept - e));
            else {
                group = add_rn(group, product(i));
                if (i % M.group == M.group - 1 || i == count - 1) {
                    sum += cut(times_power(group, M.kept - e));
                    group = 0;
                }
            }
        }
        if constexpr (M.kept > KEPT_IN_DOUBLE)
            c = add_rn((float)rounded<TO>(Exact{(u128)(sum < 0 ? -sum : sum), e - M.kept, sum < 0, false}), 0.0f);
        else c = convert(times_power((double)sum, e - M.kept));
    }

    // Nothing is cut: the exact sum.
    GEMMSIM_HD void uncut() {
        LongSum<float> sum;
        sum.clear();
        sum.add((double)c, 1.0);
        GEMMSIM_NO_UNROLL for (int i = 0; i < count; ++i) sum.add((double)o.x(i), (double)o.y(i));
        c = add_rn((float)rounded<TO>(sum), 0.0f);
    }

    GEMMSIM_HD int64_t cut_sum(int first, int stride, int e) const {
        int64_t sum = 0;
        GEMMSIM_NO_UNROLL for (int i = first; i < count; i += stride) sum += cut(times_power(product(i), M.kept - e));
        return sum;
    }

    GEMMSIM_HD void floored() {
        const int e = largest(0, 1);
        double total;
        if constexpr (M.halves != 0) {
            const int even = largest(0, 2), odd = largest(1, 2);
            total = (double)down(times_power((double)cut_sum(0, 2, even), even - e));
            if (count > 1) total = add_rn(total, (double)down(times_power((double)cut_sum(1, 2, odd), odd - e)));
        } else total = (double)cut_sum(0, 1, e);
        const int own = addend_exponent(), top = own > e ? own : e;
        const int64_t sum = down(times_power(total, M.total_bits - M.kept + e - top));
        int64_t addend = down(times_power((double)c, M.addend_bits - top));
        if (M.window >= 0 && own < top - M.window) addend = 0;
        const double both = (double)(sum + addend * ((int64_t)1 << (M.total_bits - M.addend_bits)));
        c = add_rn((float)times_power(both, top - M.total_bits), 0.0f);
    }

    // rz23, e8m13: toward zero, infinity past the largest finite value. rne10: binary16 to nearest even. Never -0.
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

    static GEMMSIM_HD float flushed(float v, float least, uint32_t keep) {
        const float mag = from_bits<float>(to_bits(v) & 0x7FFFFFFFu);
        return mag < least ? from_bits<float>(to_bits(v) & keep) : v;
    }
    static GEMMSIM_HD float settle(float v) { return M.flush ? flushed(v, 0x1p-126f, 0x80000000u) : v; }
    GEMMSIM_HD float tree_product(int i) const {
        float a = i < count ? o.x(i) : 0.0f, b = i < count ? o.y(i) : 0.0f;
        if constexpr (M.flush != 0) {
            a = flushed(a, power<float>(M.a_emin), 0);
            b = flushed(b, power<float>(M.b_emin), 0);
        }
        return settle(fma_rn(a, b, 0.0f));
    }
    // Products plus +0, adjacent pairs, then the register: binary32 operations to nearest.
    GEMMSIM_HD void tree() {
        float total = settle(add_rn(tree_product(0), tree_product(1)));
        if constexpr (M.products == 4) total = settle(add_rn(total, settle(add_rn(tree_product(2), tree_product(3)))));
        if constexpr (M.flush != 0) c = flushed(c, 0x1p-126f, 0);
        c = settle(add_rn(c, total));
    }
};

// Operands of a step whose terms come from several chunks or runs.
template <int N> struct HeldOperands {
    float a[N], b[N];

    GEMMSIM_HD float x(int i) const { return a[i]; }
    GEMMSIM_HD float y(int i) const { return b[i]; }
};

template <GemmConfig K> struct HardwareRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = MAGNITUDES;
    static constexpr int R = K.rows, C = K.cols, N = K.hardware.products > 0 ? K.hardware.products : 1;
    static constexpr int PITCH_A = Stream<K>::PanelA::PITCH, PITCH_B = Stream<K>::PanelB::PITCH;

    float c[R][C];
    HeldOperands<N> held[R][C];
    int count;  // of held operands

    GEMMSIM_HD void start() {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = 0;
        count = 0;
    }
    template <class OPERANDS> static GEMMSIM_HD float step(const OPERANDS& o, int terms, bool plain, float register_) {
        HardwareStep<K.hardware, K.add, OPERANDS> one = {o, terms, plain, register_};
        one.run();
        return one.c;
    }
    GEMMSIM_HD void flush() {
        if (count == 0) return;
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = step(held[i][j], count, false, c[i][j]);
        count = 0;
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int terms) {
        typedef Stream<K> S;
        const int end = first + terms;
        const bool plain = S::largest_product(S::template extent<MEASURES>(stream.buffer()->measured_a),
                                              S::template extent<MEASURES>(stream.buffer()->measured_b)) < 0x1p127f;
        GEMMSIM_NO_UNROLL for (int at = first; at < end;) {
            const T *a = stream.buffer()->a + at * PITCH_A, *b = stream.buffer()->b + at * PITCH_B;
            if (count == 0 && at + N <= end) {
                GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) c[i][j] = step(
                    StepOperands<T>{a + Lines<R, K.down>::line(place.ty, i), b + Lines<C, K.across>::line(place.tx, j), PITCH_A, PITCH_B},
                    N, plain, c[i][j]);
                at += N;
                continue;
            }
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j) {
                    held[i][j].a[count] = (float)a[Lines<R, K.down>::line(place.ty, i)];
                    held[i][j].b[count] = (float)b[Lines<C, K.across>::line(place.tx, j)];
                }
            ++at;
            if (++count == N) flush();
        }
    }
    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) {
        flush();
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) out.v[i][j] = (T)c[i][j];
    }
};

}  // namespace gemmsim
