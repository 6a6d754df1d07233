// The order of terms in packed panels: accumulators with interleaved or permuted sums read terms in another order than k.
#pragma once
#include <string.h>
#include <vector>
#include "product/problem.h"
#include "product/transpose.h"

namespace gemmsim {

// Writes to `kmap` the k of the terms in the order in which the runs read them, for interleaved sums. Under a shuffle k counts positions
// of the permutation, which the packing applies first.
inline void permute_terms(const Request& r, int level, int64_t begin, int64_t end, int64_t* kmap) {
    if (level == r.wrapper_count || begin >= end) return;
    const Wrapper& w = r.wrappers[level];
    if (w.order == SCHEDULED) {  // the orders inside read terms in sequence
        if (r.schedule->terms) memcpy(kmap, r.schedule->terms, sizeof(int64_t) * (size_t)r.k);
        return;
    }
    const int64_t k = end - begin;
    if (w.order == SHUFFLED) return permute_terms(r, level + 1, begin, end, kmap);
    if (w.order == INTERLEAVED) {
        const std::vector<int64_t> old(kmap + begin, kmap + end);
        const int64_t used = w.n < k ? w.n : k;
        int64_t at = begin;
        for (int64_t lane = 0; lane < used; ++lane) {
            const int64_t first = at;
            for (int64_t i = lane; i < k; i += used) kmap[at++] = old[(size_t)i];
            permute_terms(r, level + 1, first, at, kmap);
        }
        return;
    }
    const int64_t n = w.order == SPLITK ? (k + w.n - 1) / w.n : w.n;
    for (int64_t q = begin; q < end; q += n) permute_terms(r, level + 1, q, q + n < end ? q + n : end, kmap);
}

// Whether terms are read in the order of k.
inline bool in_order(const Request& r) {
    for (int w = 0; w < r.wrapper_count; ++w) {
        const int order = r.wrappers[w].order;
        if (order == SHUFFLED || order == INTERLEAVED || (order == SCHEDULED && r.schedule->terms)) return false;
    }
    return true;
}

struct TermOrder {
    std::vector<int64_t> kmap, position;  // interleaved: k of each place; reordered: place of each term; else empty
    const int64_t* permutation = nullptr;  // shuffled: the term of each k; else null

    TermOrder() {}
    // `placed`: the caller packs all panels at once and needs `position`.
    TermOrder(const Request& r, int64_t terms, bool placed) {
        bool ordered = false, lanes = false;
        for (int w = 0; w < r.wrapper_count; ++w) {
            lanes = lanes || r.wrappers[w].order == INTERLEAVED || (r.wrappers[w].order == SCHEDULED && r.schedule->terms);
            ordered = ordered || r.wrappers[w].order == SHUFFLED;
        }
        if (!ordered && !lanes) return;
        if (r.wrappers[0].order == SHUFFLED) permutation = r.permutation;
        if (!placed && !lanes) return;
        std::vector<int64_t> k_of((size_t)terms);
        for (int64_t k = 0; k < terms; ++k) k_of[(size_t)k] = k;
        permute_terms(r, 0, 0, terms, k_of.data());
        if (placed) position.resize((size_t)terms);
        for (int64_t at = 0; placed && at < terms; ++at) position[(size_t)term(k_of[(size_t)at])] = at;
        if (lanes) kmap.swap(k_of);
    }

    int64_t term(int64_t k) const { return permutation ? permutation[k] : k; }
    // Whether places, k and terms are the same.
    bool natural() const { return !permutation && kmap.empty(); }
    // Writes the terms of n places from `first` on.
    void terms(int64_t first, int64_t n, int64_t* out) const {
        for (int64_t i = 0; i < n; ++i) out[i] = term(kmap.empty() ? first + i : kmap[(size_t)(first + i)]);
    }

    Positions at() const { return position.empty() ? nullptr : position.data(); }
    const int64_t* map() const { return kmap.empty() ? nullptr : kmap.data(); }
};

}  // namespace gemmsim
