// Orders of summation: computes runs of terms and combines their partial sums, for the outputs of one thread. All threads of a block
// take the same path, because it depends on the number of terms alone. cpu/product/summation_orders.h has the same orders for the CPU.
#pragma once
#include "gemm/simt/scales.h"
#include "gemm/simt/split_k.h"

namespace gemmsim {

// RUN has start(), chunk(stream, place, first, count) and finish(place, totals, terms, index of the run). In the kernel that combines
// the partial sums of split-K (JOIN), it has take(totals) instead.
template <GemmConfig K, class RUN, class STREAM = Stream<K>> struct Orders {
    typedef typename Steps<K>::T T;
    typedef Totals<K> Tile;
    static constexpr int R = K.rows, C = K.cols, TALLEST = 33;

    STREAM& stream;
    const Place<K>& place;
    const int64_t* size;
    RUN& run;
    const BlockScales<K>& scales;
    const ScheduleOp* schedule = nullptr;
    int64_t schedule_count = 0;
    static constexpr int LEVELS = K.levels > 0 ? K.levels : 1;
    int64_t sums[LEVELS] = {}, totals[LEVELS] = {}, runs = 0;  // combinations so far, which index their draws

    static constexpr int depth(int level) { return random_levels(K, level); }

    // Computes the innermost accumulator over the terms [begin, end), from +0.
    GEMMSIM_HD void leaf(int64_t begin, int64_t end, Tile& out) {
        if constexpr (K.split == JOIN) run.take(out);
        else {
            run.start();
            if constexpr (K.hardware.first != 0) {
                const int64_t rest = (end - begin) % K.hardware.first;
                if (rest) {
                    first_tile(begin, begin + rest, out);
                    begin += rest;
                }
            }
            terms(begin, end);
            run.finish(place, out, end - begin, runs++);
            if constexpr (K.hardware.kind != HW_NONE)
                if ((end - begin) % K.hardware.k != 0) fill_up(out);
        }
    }
    // Zero products fill up an instruction and turn -0 into +0.
    static GEMMSIM_HD void fill_up(Tile& out) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] = add_rn(out.v[i][j], (T)0);
    }
    // Adds the terms [begin, end), which zeros fill up to a whole tile. The register carries on.
    GEMMSIM_HD void first_tile(int64_t begin, int64_t end, Tile& out) {
        terms(begin, end);
        if constexpr (K.method == HARDWARE) run.end_first_tile(end - begin);
        else {
            run.finish(place, out, end - begin, runs);
            fill_up(out);
            run.start();
            run.start_from(out);
        }
    }
    // Adds the terms [begin, stop) to the run, chunk by chunk.
    GEMMSIM_HD void terms(int64_t begin, int64_t stop) {
        const int end = (int)stop;
        GEMMSIM_NO_UNROLL for (int at = (int)begin; at < end;) {
            stream.template reach<RUN::MEASURES>(at);
            const int first = at - stream.base, room = Stream<K>::DEPTH - first;
            const int count = end - at < room ? end - at : room;
            if (stream.computes()) run.chunk(stream, place, first, count);
            at += count;
        }
    }

    // Computes the terms [begin, end) by the wrappers from LEVEL inwards.
    template <int LEVEL> GEMMSIM_HD void walk(int64_t begin, int64_t end, Tile& out) {
        if constexpr (LEVEL == K.levels) leaf(begin, end, out);
        else {
            constexpr int order = K.wrapper[LEVEL].order;
            const int64_t n = size[LEVEL], k = end - begin;
            if constexpr (order == SCALED) groups<LEVEL>(begin, end, n, out);
            else if constexpr (order == SHUFFLED) walk<LEVEL + 1>(begin, end, out);
            else if constexpr (order == SCHEDULED) scheduled<LEVEL>(out);
            else if constexpr (order == CHUNKED) sequence<LEVEL>(begin, end, n, 0, out);
            else if constexpr (order == SPLITK) sequence<LEVEL>(begin, end, (k + n - 1) / n, 0, out);
            else if constexpr (order == PAIRWISE) pairs<LEVEL>(begin, end, n, 0, out);
            else if constexpr (K.wrapper[LEVEL].pairs) pairs<LEVEL>(begin, end, 0, n < k ? n : k, out);
            else sequence<LEVEL>(begin, end, 0, n < k ? n : k, out);
        }
    }

    template <int LEVEL> GEMMSIM_HD void meet(Tile& s, const Tile& x, int64_t index) {
        meet<LEVEL>(s, x, index, SITE_COMBINE + 32 * depth(LEVEL));
    }
    // Combines partial sums: s = R(s + x). `index` and `stream` key the draw of a stochastic cast.
    template <int LEVEL> GEMMSIM_HD void meet(Tile& s, const Tile& x, int64_t index, int stream) {
        constexpr Cast cast = K.wrapper[LEVEL].cast;
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            uint32_t draw = 0;
            if constexpr (cast.mode >= SR) draw = place.draw(i, j, index, stream, cast.rbits);
            const T before = s.v[i][j];
            s.v[i][j] = Rounding<T, cast, K.fp32 != 0>::sum(before, x.v[i][j], draw);
            if constexpr (K.counted.present) run.events.template sum<1 + LEVEL, cast>(i, j, before, x.v[i][j], s.v[i][j], draw);
        }
        if constexpr (K.counted.present) run.events.settle();
    }
    // Rounds a partial sum to the format of split-K's workspace. x + (-0) is x, also for x = -0.
    template <int LEVEL> GEMMSIM_HD void settle(Tile& s, int64_t index) { settle<LEVEL>(s, index, SITE_WORKSPACE + 32 * depth(LEVEL)); }
    template <int LEVEL> GEMMSIM_HD void settle(Tile& s, int64_t index, int stream) {
        constexpr Cast cast = K.wrapper[LEVEL].cast;
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            uint32_t draw = 0;
            if constexpr (cast.mode >= SR) draw = place.draw(i, j, index, stream, cast.rbits);
            s.v[i][j] = Rounding<T, cast, K.fp32 != 0>::sum(s.v[i][j], (T)-0.0, draw);
        }
    }
    static GEMMSIM_HD void clear(Tile& s) { fill(s, (T)0); }
    static GEMMSIM_HD void fill(Tile& s, T value) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) s.v[i][j] = value;
    }

    // The wrapper inside those of the schedule that begins at LEVEL.
    static constexpr int inside(int level) {
        while (level < K.levels && K.wrapper[level].order == SCHEDULED) ++level;
        return level;
    }
    // Computes all terms by the operations of the schedule, whose roundings are the wrappers from LEVEL on.
    template <int LEVEL> GEMMSIM_HD void scheduled(Tile& out) {
        Tile stack[K.schedule > 0 ? K.schedule : 1];
        int used = 0;
        int64_t at = 0;
        GEMMSIM_NO_UNROLL for (int64_t i = 0; i < schedule_count; ++i) {
            const ScheduleOp op = schedule[i];
            if (op.code == SCHEDULE_RUN) {
                walk<inside(LEVEL)>(at, at + op.n, stack[used++]);
                at += op.n;
            } else if (op.code == SCHEDULE_ZERO) fill(stack[used++], op.n ? (T)-0.0 : (T)0);
            else used = operate<LEVEL, LEVEL>(op, stack, used);
        }
        out = stack[0];
    }
    // Applies one operation whose rounding is the wrapper WRAPPER, or one after it. Returns the number of partial sums on the stack.
    template <int LEVEL, int WRAPPER> GEMMSIM_HD int operate(const ScheduleOp& op, Tile* stack, int used) {
        if constexpr (WRAPPER < K.levels && K.wrapper[WRAPPER < K.levels ? WRAPPER : 0].order == SCHEDULED) {
            if (op.cast != WRAPPER - LEVEL) return operate<LEVEL, WRAPPER + 1>(op, stack, used);
            Tile* const top = stack + used - 1;
            switch (op.code) {
                case SCHEDULE_ROUND: settle<WRAPPER>(*top, op.index, (int)op.n); return used;
                case SCHEDULE_ADD: meet<WRAPPER>(top[-1], *top, op.index, (int)op.n); return used - 1;
                case SCHEDULE_COMPENSATE: compensate<WRAPPER>((int)op.n, top[-2], top[-1], *top); return used - 1;
                default:
                    if (op.n != KAHAN) meet<WRAPPER>(top[-1], *top, op.index, 0);
                    return used - 1;
            }
        } else return used;
    }
    // Adds the totals x to compensated sums (s, c), by gemmsim::Method's operations.
    template <int LEVEL> GEMMSIM_HD void compensate(int method, Tile& s, Tile& c, const Tile& totals) {
        constexpr Cast cast = K.wrapper[LEVEL].cast;
        const auto sum = [](T x, T y) { return Rounding<T, cast, K.fp32 != 0>::sum(x, y, 0); };
        GEMMSIM_NO_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_NO_UNROLL for (int j = 0; j < C; ++j) {
            const T S = s.v[i][j], C_ = c.v[i][j];
            const T x = method == KAHAN ? sum(totals.v[i][j], -C_) : sum(totals.v[i][j], (T)-0.0);
            const T t = sum(S, x);
            if constexpr (K.counted.present) run.events.template sum<1 + LEVEL, cast>(i, j, S, x, t, 0);
            T e;
            if (method == KAHAN) c.v[i][j] = sum(sum(t, -S), -x);
            else {
                if (method == NEUMAIER) {
                    const bool larger = (S < 0 ? -S : S) >= (x < 0 ? -x : x);
                    e = sum(sum(larger ? S : x, -t), larger ? x : S);
                } else if (method == TWO_SUM) {
                    const T z = sum(t, -S);
                    e = sum(sum(S, -sum(t, -z)), sum(x, -z));
                } else e = sum(x, -sum(t, -S));
                c.v[i][j] = sum(C_, e);
            }
            s.v[i][j] = t;
        }
        if constexpr (K.counted.present) run.events.settle();
    }

    static GEMMSIM_HD int64_t lane_size(int64_t k, int64_t lanes, int64_t lane) { return k / lanes + (lane < k % lanes ? 1 : 0); }

    // Computes runs of n terms, or `lanes` interleaved sums, one after another, and adds their partial sums in sequence.
    template <int LEVEL> GEMMSIM_HD void sequence(int64_t begin, int64_t end, int64_t n, int64_t lanes, Tile& out) {
        clear(out);
        int64_t lane = 0;
        for (int64_t at = begin; at < end; ++lane) {
            const int64_t length = lanes ? lane_size(end - begin, lanes, lane) : n;
            const int64_t stop = at + length < end ? at + length : end;
            Tile total;
            walk<LEVEL + 1>(at, stop, total);
            if constexpr (K.wrapper[LEVEL].order == SPLITK) settle<LEVEL>(total, totals[LEVEL]++);
            meet<LEVEL>(out, total, sums[LEVEL]++);
            at = stop;
        }
    }

    // Computes runs of n terms, multiplies each partial sum by the scales of its blocks, and adds the products in sequence.
    template <int LEVEL> GEMMSIM_HD void groups(int64_t begin, int64_t end, int64_t n, Tile& out) {
        constexpr Cast cast = K.wrapper[LEVEL].cast;
        clear(out);
        GEMMSIM_NO_UNROLL for (int64_t at = begin; at < end; at += n) {
            Tile total;
            walk<LEVEL + 1>(at, at + n < end ? at + n : end, total);
            const int64_t index = sums[LEVEL]++;
            double right[C];
            GEMMSIM_UNROLL for (int j = 0; j < C; ++j) right[j] = scales.right(place.col(j), at);
            GEMMSIM_UNROLL for (int i = 0; i < R; ++i) {
                const double left = scales.left(place.line(i), at);
                GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] =
                    scaled_sum<T, cast>(out.v[i][j], total.v[i][j], mul_rn(left, right[j]), draw<LEVEL>(i, j, index));
            }
        }
    }

    // Returns the random bits of combination `index`, or 0 if its cast is not stochastic.
    template <int LEVEL> GEMMSIM_HD uint32_t draw(int i, int j, int64_t index) const {
        constexpr Cast cast = K.wrapper[LEVEL].cast;
        if constexpr (cast.mode >= SR) return place.draw(i, j, index, SITE_COMBINE + 32 * depth(LEVEL), cast.rbits);
        else return 0;
    }

    // Multiplies the sum of all terms by the tensors' own scales. The outermost register rounds once more.
    GEMMSIM_HD void times_tensor_scales(Tile& out) {
        constexpr Cast cast = K.levels > 0 ? K.wrapper[0].cast : K.add;
        const double x = scales.tensor();
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            uint32_t bits = 0;
            if constexpr (K.levels > 0) bits = draw<0>(i, j, sums[0]);
            out.v[i][j] = times_tensor_scale<T, cast>(out.v[i][j], x, bits);
        }
    }

    // Combines adjacent pairs of runs of n terms (or of interleaved sums), then pairs of their partial sums, and so on. An odd last one
    // moves up unchanged. Partial sums wait on a stack. The stack has at most one of each height: those of the one bits of the number of
    // runs done.
    template <int LEVEL> GEMMSIM_HD void pairs(int64_t begin, int64_t end, int64_t n, int64_t lanes, Tile& out) {
        const int64_t k = end - begin, leaves = lanes ? lanes : (k + n - 1) / n, base = sums[LEVEL];
        // Draws number the pairs height by height, although this loop visits the tree depth first.
        auto index = [&](int height, int64_t first) {
            int64_t before = 0, wide = leaves;
            for (int h = 0; h < height; ++h, wide -= wide / 2) before += wide / 2;
            return base + before + (first >> height) / 2;
        };
        Tile stack[TALLEST];
        int used = 0;
        int64_t at = begin;
        GEMMSIM_NO_UNROLL for (int64_t leaf = 0; leaf < leaves; ++leaf) {
            const int64_t length = lanes ? lane_size(k, lanes, leaf) : n, stop = at + length < end ? at + length : end;
            Tile total;
            walk<LEVEL + 1>(at, stop, total);
            at = stop;
            int64_t done = leaf + 1;
            int height = 0;
            const bool last = done == leaves;
            // Combine once for each trailing one bit of `leaf`. After the last run, combine everything on the stack. The height of such
            // a combination is that of the partial sum on its left.
            GEMMSIM_NO_UNROLL while (used > 0) {
                if (!last && ((leaf >> height) & 1) == 0) break;
                while (((leaf >> height) & 1) == 0) ++height;
                const int64_t first = (leaf >> height << height) - ((int64_t)1 << height);
                Tile left = stack[--used];
                meet<LEVEL>(left, total, K.wrapper[LEVEL].cast.mode >= SR ? index(height, first) : 0);
                total = left;
                ++height;
            }
            if (last) out = total;
            else stack[used++] = total;
        }
        sums[LEVEL] = base + leaves - 1;
    }
};

}  // namespace gemmsim
