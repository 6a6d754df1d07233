// Split-K: several blocks share the terms of a tile, for products of few rows. It needs an order that combines partial sums of runs.
// Blocks compute the runs of the only wrapper and write their partial sums (PART). A second kernel combines them in the same order
// (JOIN, split_k_reduce.h). The bits are those of one block. Without a wrapper the sum must be exact (kulisch_run.h, integer_run.h).
// Blocks then write parts of any terms, because no order changes an exact sum. gemmsim/backends/cuda/simt/split_k.py chooses the slices.
#pragma once
#include "gemm/simt/config.h"

namespace gemmsim {

enum SplitOf : int32_t { WHOLE = 0, PART = 1, JOIN = 2 };

// The runs into which a wrapper of order ORDER and size n divides k > 0 terms. They follow one another in the order in which the terms
// are read.
template <int ORDER> struct RunsOf {
    int64_t k, size, longer, count;  // `longer`: number of interleaved sums, the first ones, with one more term

    GEMMSIM_HD RunsOf(int64_t n, int64_t terms) : k(terms), longer(0) {
        if constexpr (ORDER == INTERLEAVED) {
            count = n < k ? n : k;
            size = k / count;
            longer = k - size * count;
        } else {
            size = ORDER == SPLITK ? (k + n - 1) / n : n;
            count = (k + size - 1) / size;
        }
    }
    GEMMSIM_HD int64_t begin(int64_t run) const {
        const int64_t at = run * size + (run < longer ? run : longer);
        return at < k ? at : k;
    }
};

}  // namespace gemmsim
