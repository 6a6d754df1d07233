// The loop of kernels that speculate on some terms and compute others in full, and the rule by which they end an attempt.
#pragma once
#include "vec.h"

namespace gemmsim::NS {

// Whether checks that failed `found` times in `terms` terms fail too often: more than once in EACH terms, and more than FIRST / EACH times
// in the beginning.
template <int64_t EACH, int64_t FIRST> INL bool fails_often(int64_t found, int64_t terms) { return found * EACH > terms + FIRST; }

// Computes terms [from, to). fast(k) speculates from term k on and returns where it ended. Where it ended early, exact(k, n) computes n
// terms before another attempt: 64 at first, and twice as many each time.
template <class Fast, class Exact> INL void speculate(int64_t from, int64_t to, const Fast& fast, const Exact& exact) {
    int64_t k = from;
    for (int64_t most = 64; k < to; most *= 2) {
        k = fast(k);
        const int64_t n = to - k < most ? to - k : most;
        if (n) exact(k, n);
        k += n;
    }
}

}  // namespace gemmsim::NS
