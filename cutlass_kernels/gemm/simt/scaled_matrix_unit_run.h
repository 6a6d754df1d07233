// Runs of a chip's block-scaled matrix instruction. Products, or exact sums of groups of products, are multiplied by both scales, and
// the scales' exponents are added to theirs. All of this is exact in double or int64, as in matrix_unit_run.h.
#pragma once
#include "gemm/simt/matrix_unit_run.h"
#include "gemm/simt/scales.h"

namespace gemmsim {

template <GemmConfig K> struct ScaledHardwareRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr HardwareModel M = K.hardware;
    static constexpr int R = K.rows, C = K.cols, N = M.products, SIZE = M.kind == HW_GROUPS ? M.group : 1;
    static constexpr int PITCH_A = Stream<K>::PanelA::PITCH, PITCH_B = Stream<K>::PanelB::PITCH;
    // The format of the scales: e8m0 or another one. Blocks that fill up an instruction have the scale of code 0.
    static constexpr ScaleSide SIDE = K.scale_a.present ? K.scale_a : K.scale_b;
    static constexpr int EMIN = SIDE.powers ? -127 : SIDE.code.quantum + SIDE.code.trailing;
    static_assert(N > 0 && (M.kind == HW_FUSED || M.kind == HW_GROUPS) && K.depth % (N > 0 ? N : 1) == 0);

    float c[R][C];
    const BlockScales<K>* scales;

    GEMMSIM_HD void start() {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) c[i][j] = 0;
    }

    static GEMMSIM_HD double without_sign(double x) { return from_bits<double>(to_bits(x) & ~Carrier<double>::SIGN); }
    static GEMMSIM_HD int exponent(double x) { return x == 0 ? ZERO_EXPONENT : exponent_of(x) < EMIN ? EMIN : exponent_of(x); }
    GEMMSIM_HD double left(int64_t row, int64_t k) const {
        return k / scales->g.block_a * scales->g.block_a < scales->g.k ? without_sign(scales->left(row, k)) : block_scale<SIDE>(0);
    }
    GEMMSIM_HD double right(int64_t col, int64_t k) const {
        return k / scales->g.block_b * scales->g.block_b < scales->g.k ? without_sign(scales->right(col, k)) : block_scale<SIDE>(0);
    }

    // The exact sum of the products [first, first + SIZE), as far as they exist, and the exponent that aligns it. If all products are
    // zero, the exponent is ZERO_EXPONENT and does not count.
    struct Term {
        double value;
        int exponent;
        bool nan, plus, minus;
    };
    GEMMSIM_HD Term term(const T* a, const T* b, int first, int count, double xa, double xb) const {
        Term t = {0, exponent(xa) + exponent(xb), xa != xa || xb != xb, false, false};
        const double inf = number(0x7FFull << 52);
        bool zero = true;
        GEMMSIM_NO_UNROLL for (int i = first; i < first + SIZE && i < count; ++i) {
            const float x = (float)a[i * PITCH_A], y = (float)b[i * PITCH_B];
            const double q = mul_rn((double)x, (double)y);
            if (q != q) t.nan = true;
            else if (q == inf) t.plus = true;
            else if (q == -inf) t.minus = true;
            t.value = add_rn(t.value, q);
            zero = zero && q == 0;
            if (M.kind == HW_FUSED) t.exponent += hardware_exponent(x, M.a_emin) + hardware_exponent(y, M.b_emin);
        }
        t.value = mul_rn(t.value, mul_rn(xa, xb));
        if (zero) t.exponent = ZERO_EXPONENT;
        return t;
    }

    // Computes one instruction's step for one output. It visits the terms twice: for the largest exponent, and for the sum.
    GEMMSIM_HD float step(const T* a, const T* b, int64_t k, int count, int64_t row, int64_t col, float start) const {
        typedef HardwareStep<M, K.add, StepOperands<T>> Step;
        const float inf = from_bits<float>(Carrier<float>::EXPONENT);
        bool nan = start != start, plus = start == inf, minus = start == -inf;
        const int terms = M.kind == HW_GROUPS ? N : count;
        const int own = hardware_exponent(start, M.out == HW_RNE10 ? -14 : -126);
        int e = own < M.least ? M.least : own;
        GEMMSIM_NO_UNROLL for (int i = 0; i < terms; i += SIZE) {
            const Term t = term(a, b, i, count, left(row, k + i), right(col, k + i));
            e = t.exponent > e ? t.exponent : e;
            nan = nan || t.nan;
            plus = plus || t.plus;
            minus = minus || t.minus;
        }
        if (nan || (plus && minus)) return quiet_nan<float>();
        if (plus || minus) return plus ? inf : -inf;
        int64_t sum = cut(times_power((double)start, M.kept - e));
        GEMMSIM_NO_UNROLL for (int i = 0; i < terms; i += SIZE) sum +=
            cut(times_power(term(a, b, i, count, left(row, k + i), right(col, k + i)).value, M.kept - e));
        return Step::convert(times_power((double)sum, e - M.kept));
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int terms) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + terms; at += N) {
            const int count = first + terms - at < N ? first + terms - at : N;
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j)
                    c[i][j] = step(stream.buffer()->a + at * PITCH_A + Lines<R, K.down>::line(place.ty, i),
                                   stream.buffer()->b + at * PITCH_B + Lines<C, K.across>::line(place.tx, j), stream.base + at, count,
                                   place.line(i), (int64_t)place.col(j), c[i][j]);
        }
    }
    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) out.v[i][j] = (T)c[i][j];
    }
};

}  // namespace gemmsim
