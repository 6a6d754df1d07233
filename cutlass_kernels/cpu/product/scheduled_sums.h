// Computes the terms of a tile by a schedule (gemmsim/schedule.h): operations on a stack of tiles. The runs between them are those of the
// wrappers inside the schedule.
#pragma once
#include <math.h>
#include <string.h>
#include "product/problem.h"
#include "product/scratch.h"

namespace gemmsim {

// ORDERS computes runs and combines tiles (Compose in summation_orders.h).
template <class T, class ORDERS> struct ScheduledSums {
    const ORDERS& orders;

    // Computes all terms by the operations of the schedule, whose roundings are the wrappers from `level` on.
    void run(int level, T* out) const {
        const Request& r = orders.r;
        const Schedule& s = *r.schedule;
        int inner = level;
        while (inner < r.wrapper_count && r.wrappers[inner].order == SCHEDULED) ++inner;
        const size_t size = (size_t)orders.count();
        const Buffer memory(sizeof(T) * size * (size_t)(s.depth + SCHEDULE_SPARE));
        T* const stack = (T*)memory.p;
        T* const spare = stack + size * (size_t)s.depth;
        T* top = stack - size;
        int64_t at = 0;
        for (int64_t i = 0; i < s.count; ++i) {
            const ScheduleOp& op = s.ops[i];
            const int cast = level + (int)op.cast;
            switch (op.code) {
                case SCHEDULE_RUN:
                    top += size;
                    orders.run(inner, at, at + op.n, top);
                    at += op.n;
                    break;
                case SCHEDULE_ZERO: fill(top += size, op.n ? (T)-0.0 : (T)0); break;
                case SCHEDULE_ADD:
                    top -= size;
                    orders.combine_sums(cast, top, top + size, op.index, (int)op.n, true);
                    break;
                case SCHEDULE_ROUND:
                    fill(spare, (T)-0.0);  // x + (-0) is x, for x = -0 too
                    orders.combine_sums(cast, top, spare, op.index, (int)op.n, false);
                    break;
                case SCHEDULE_COMPENSATE:
                    top -= size;
                    compensate(cast, (int)op.n, top - size, top, top + size, spare);
                    break;
                default:
                    top -= size;
                    if (op.n != KAHAN) orders.combine_sums(cast, top, top + size, op.index, 0, true);
            }
        }
        memcpy(out, stack, sizeof(T) * size);
    }
    static constexpr int SCHEDULE_SPARE = 4;  // tiles for intermediate results

    void fill(T* tile, T value) const {
        for (int64_t i = 0; i < orders.count(); ++i) tile[i] = value;
    }
    // out = R(x + y), or R(x - y).
    void sum_to(int cast, T* out, const T* x, const T* y, bool minus, bool adds = false) const {
        T* const negated = minus ? out + orders.count() : nullptr;
        for (int64_t i = 0; minus && i < orders.count(); ++i) negated[i] = is_nan((double)y[i]) ? y[i] : -y[i];
        memcpy(out, x, sizeof(T) * (size_t)orders.count());
        orders.combine_sums(cast, out, minus ? negated : y, 0, 0, adds);
    }
    // Adds the total x to the compensated sum (s, c). The operations are those of gemmsim::Method's compensated sums, with x as a term
    // that is a number of the carrier. `spare` has SCHEDULE_SPARE tiles; sum_to() uses the one behind its result.
    void compensate(int cast, int method, T* s, T* c, T* x, T* spare) const {
        const int64_t n = orders.count();
        T *const t = spare, *const u = spare + n, *const v = spare + 2 * n;
        if (method == KAHAN) {
            sum_to(cast, v, x, c, true);         // y = R(x - C)
            sum_to(cast, t, s, v, false, true);  // t = R(S + y)
            memcpy(c, v, sizeof(T) * (size_t)n);
            sum_to(cast, v, t, s, true);  // R(t - S)
            memcpy(s, t, sizeof(T) * (size_t)n);
            sum_to(cast, t, v, c, true);  // C = R(R(t - S) - y)
            memcpy(c, t, sizeof(T) * (size_t)n);
            return;
        }
        fill(v, (T)-0.0);
        orders.combine_sums(cast, x, v, 0, 0, false);  // x = R(x)
        sum_to(cast, t, s, x, false, true);     // t = R(S + x)
        if (method == NEUMAIER) {
            for (int64_t i = 0; i < n; ++i)
                if (!(fabs((double)s[i]) >= fabs((double)x[i]))) {
                    const T low = s[i];
                    s[i] = x[i], x[i] = low;
                }
            sum_to(cast, u, s, t, true);
            orders.combine_sums(cast, u, x, 0, 0, false);  // e = R(R(hi - t) + lo)
        } else if (method == TWO_SUM) {
            sum_to(cast, u, t, s, true);  // z = R(t - S)
            sum_to(cast, v, x, u, true);  // R(x - z)
            memcpy(x, v, sizeof(T) * (size_t)n);
            sum_to(cast, v, t, u, true);  // R(t - z)
            sum_to(cast, u, s, v, true);  // R(S - R(t - z))
            orders.combine_sums(cast, u, x, 0, 0, false);
        } else {
            sum_to(cast, v, t, s, true);  // R(t - S)
            sum_to(cast, u, x, v, true);  // e = R(x - R(t - S))
        }
        orders.combine_sums(cast, c, u, 0, 0, false);  // C = R(C + e)
        memcpy(s, t, sizeof(T) * (size_t)n);
    }
};

}  // namespace gemmsim
