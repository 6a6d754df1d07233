// Runs of two's complement registers. INTEGER adds products of whole numbers. FIXED adds products rounded to multiples of 2^-frac.
#pragma once
#include "gemm/simt/integer_sum.h"
#include "gemm/simt/k_loop.h"

namespace gemmsim {

// The run for any operands, in integers of 128 bits. An INTEGER register is NaN if an operand is not a whole number.
template <GemmConfig K> struct AnyIntegerRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr bool IS_FIXED = K.method == FIXED;
    static constexpr int R = K.rows, C = K.cols;
    static constexpr OperandFacts A = operand_facts(K.cast_a, K.a), B = operand_facts(K.cast_b, K.b);
    // Whether a sum of up to 2^31 products may need more than 128 bits. Such a sum is brought into range once, at the end.
    static constexpr bool LONG_SUM = !IS_FIXED && K.reg.at_end && A.top + B.top > 90;
    static constexpr bool NARROW = A.top <= 128 && B.top <= 128;
    typedef LongSum<typename Steps<K>::template Pick<double, float, NARROW>::type> Sum;

    IntegerSum sum[R][C];
    typename Steps<K>::template Pick<char, Sum, LONG_SUM>::type exact[R][C];
    bool nan[R][C];
    int64_t count[R][C] = {};  // overflows in all runs; -1: an operand of an INTEGER register was not whole

    GEMMSIM_HD void start() {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) {
                sum[i][j].start(K.reg);
                if constexpr (LONG_SUM) exact[i][j].clear();
                nan[i][j] = false;
            }
    }

    GEMMSIM_HD void term(double a, double b, int i, int j, uint32_t draw) {
        IntegerSum& s = sum[i][j];
        if constexpr (IS_FIXED) {
            if (K.count && nan[i][j]) return;  // NaN counts no further overflow
            const double p = a * b;
            if (is_nan(p) || is_inf(a) || is_inf(b)) {
                if (is_nan(p) || !K.reg.saturate) nan[i][j] = true;
                else s.jump(p < 0);
                return;
            }
            const Exact x = exact_product(a, b);
            s.add(K.reg, on_grid(x, K.reg, K.mul, draw), grid_bits(x, K.reg) > BEYOND);
        } else if (!is_whole(a) || !is_whole(b)) nan[i][j] = true;
        else if constexpr (LONG_SUM) exact[i][j].add(shifted(exact_product(a, b), K.reg.shift, Sum::UNIT));
        else {
            const Exact x = exact_product(a, b);
            s.add(K.reg, on_grid(x, K.reg, K.mul, 0) >> K.reg.shift, grid_bits(x, K.reg) > BEYOND);
        }
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + count; ++at) {
            typename Stream<K>::Number a[R], b[C];
            Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            for (int i = 0; i < R; ++i)
                for (int j = 0; j < C; ++j) {
                    uint32_t draw = 0;
                    if constexpr (IS_FIXED && K.mul.mode >= SR)
                        draw = place.draw(i, j, place.k_of(stream.base + at), SITE_PRODUCT, K.mul.rbits);
                    term((double)stream.left(a[i]), (double)stream.right(a[i], b[j]), i, j, draw);
                }
        }
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) {
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) {
                IntegerSum& s = sum[i][j];
                if constexpr (LONG_SUM) s.fold_long(K.reg, exact[i][j]);
                else if constexpr (!IS_FIXED) s.fold(K.reg, false);
                if constexpr (K.count) count[i][j] = count[i][j] < 0 || (!IS_FIXED && nan[i][j]) ? -1 : count[i][j] + s.overflows;
                out.v[i][j] = (T)(nan[i][j] ? canonical_nan() : scale2((double)(int64_t)s.s, IS_FIXED ? -K.reg.frac : 0));
            }
    }
};

// The run for whole operands of few bits (SmallIntegers in steps.h), in ordinary integers.
template <GemmConfig K> struct SmallIntegerRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = K.table.columns ? NOTHING : MAGNITUDES;
    static constexpr int R = K.rows, C = K.cols;
    typedef typename Steps<K>::template Pick<int64_t, int32_t, SmallIntegers<K>::IN_32>::type Int;
    typedef typename Steps<K>::template Pick<uint64_t, uint32_t, SmallIntegers<K>::IN_32>::type Word;

    Int s[R][C];
    uint64_t broken;  // a bit for each output: whether one of its operands was not whole

    GEMMSIM_HD void start() {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) s[i][j] = 0;
        broken = 0;
    }
    static constexpr Int LOW = K.reg.is_signed ? (Int)(0 - ((Word)1 << (K.reg.bits - 1))) : 0;
    static constexpr Int HIGH = (Int)(((Word)1 << (K.reg.bits - 1)) - 1 + (K.reg.is_signed ? 0 : (Word)1 << (K.reg.bits - 1)));

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        const bool whole = MEASURES != NOTHING && stream.template extent<MEASURES>(stream.buffer()->measured_a).most < 0x7F800000u &&
                           stream.template extent<MEASURES>(stream.buffer()->measured_b).most < 0x7F800000u;
        if (whole) terms<true>(stream, place, first, count);
        else terms<false>(stream, place, first, count);
    }

    // WHOLE: no factor is NOT_WHOLE. The template makes two loops, because the compiler does not split one loop by itself.
    template <bool WHOLE> GEMMSIM_HD void terms(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_UNROLL_BY(WHOLE ? 4 : 2) for (int at = first; at < first + count; ++at) {
            int32_t a[R], b[C];
            Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
                int32_t looked_up = 0;
                if constexpr (K.table.columns) looked_up = stream.right(a[i], b[j]);
                Int x = (Int)((Word)s[i][j] + (K.table.columns ? (Word)(Int)looked_up : (Word)(Int)a[i] * (Word)(Int)b[j]));
                if constexpr (K.reg.saturate && !K.reg.at_end) x = x < LOW ? LOW : x > HIGH ? HIGH : x;
                s[i][j] = x;
                if (K.table.columns ? looked_up == NOT_WHOLE : !WHOLE && (a[i] == NOT_WHOLE || b[j] == NOT_WHOLE))
                    broken |= 1ull << (i * C + j);
            }
        }
    }

    // The partial sum that a block of split-K writes. join() adds one of them to a run of one output.
    struct Part {
        Int s, broken;
    };
    GEMMSIM_HD Part part(int i, int j) const { return Part{s[i][j], (Int)(broken >> (i * C + j) & 1)}; }
    GEMMSIM_HD void join(const Part& x) {
        static_assert(!K.reg.saturate || K.reg.at_end, "a register that saturates at each addition has an order");
        s[0][0] = (Int)((Word)s[0][0] + (Word)x.s);
        broken |= (uint64_t)x.broken;
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            int64_t x = s[i][j];
            if constexpr (K.reg.saturate) x = x<(int64_t)LOW ? (int64_t)LOW : x>(int64_t) HIGH ? (int64_t)HIGH : x;
            else {
                constexpr int64_t low = LOW;
                x = low + (int64_t)(((uint64_t)x - (uint64_t)low) & (((uint64_t)1 << K.reg.bits) - 1));
            }
            out.v[i][j] = broken >> (i * C + j) & 1 ? quiet_nan<T>() : (T)x;
        }
    }
};

template <GemmConfig K, bool SMALL = SmallIntegers<K>::POSSIBLE> struct IntegerRun : AnyIntegerRun<K> {};
template <GemmConfig K> struct IntegerRun<K, true> : SmallIntegerRun<K> {};

}  // namespace gemmsim
