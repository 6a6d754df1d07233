// K over several blocks, where an order lets totals meet later: blocks compute runs of the one wrapper there is into memory (PART),
// and a second kernel adds them in the order's own way (JOIN, split_k_reduce.h). The same bits as in one block. Without a wrapper the run's
// sum is exact (kulisch_run.h, integer_run.h), of whatever terms: blocks leave the parts of it, which no order can change.
#pragma once
#include "gemm/simt/config.h"

namespace gemmsim {

enum SplitOf : int32_t { WHOLE = 0, PART = 1, JOIN = 2 };

// The runs that a wrapper of order ORDER and size n makes of k > 0 terms, one after another in the order in which they are read.
template <int ORDER> struct RunsOf {
    int64_t k, size, longer, count;  // `longer`: lanes, the first ones, of one term more

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
