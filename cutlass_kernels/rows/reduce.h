// Adds the terms of a row in a stated order and rounds each addition.
#pragma once
#include "rows/scalar_lane.h"

namespace gemmsim::rows {

enum { MAX_PARTS = 1024, WARP = 32 };

// Order 1 adds the terms in ascending order, from +0. Order n, a power of two, has n partial sums: number i adds the terms i, i +
// n, ... from +0. Then the partial sums within each group of 32 are combined: i and i + h for h = 16, 8, 4, 2, 1, or from h = n / 2
// on if n < 32. Last, the sums of the groups are added in ascending order. `term(k)` is the k-th term. The rounding of its addition
// draws at element k, and that of the combining addition number i (from 0) at element `cols` + i.
template <class L, class Term> GEMMSIM_HD typename L::V ordered_sum(const L& lanes, int64_t cols, int order, int step, const Term& term) {
    typedef typename L::V V;
    if (order <= 1) {
        V s = L::splat(0.0);
        for (int64_t k = 0; k < cols; ++k) s = lanes.add(s, term(k), step, k);
        return s;
    }
    V part[MAX_PARTS];
    for (int i = 0; i < order; ++i) part[i] = L::splat(0.0);
    for (int64_t k = 0; k < cols; ++k) part[k % order] = lanes.add(part[k % order], term(k), step, k);
    int64_t at = cols;
    const int group = order < WARP ? order : WARP;
    for (int g = 0; g < order; g += group)
        for (int h = group / 2; h > 0; h /= 2)
            for (int i = 0; i < h; ++i) part[g + i] = lanes.add(part[g + i], part[g + i + h], step, at++);
    for (int g = group; g < order; g += group) part[0] = lanes.add(part[0], part[g], step, at++);
    return part[0];
}

}  // namespace gemmsim::rows
