// Where terms lie in packed panels, for accumulators that read them in another order.
#pragma once
#include <vector>
#include "product/compose.h"
#include "product/pack.h"

namespace gemmsim {

struct TermOrder {
    std::vector<int64_t> kmap, position;  // interleaved: k of each place; permuted: place of each term; else empty

    TermOrder() {}
    TermOrder(const Request& r, int64_t terms) {
        bool ordered = false, lanes = false;
        for (int w = 0; w < r.wrapper_count; ++w) {
            lanes = lanes || r.wrappers[w].order == INTERLEAVED;
            ordered = ordered || r.wrappers[w].order == SHUFFLED;
        }
        if (!ordered && !lanes) return;
        std::vector<int64_t> k_of((size_t)terms);
        for (int64_t k = 0; k < terms; ++k) k_of[(size_t)k] = k;
        permute_terms(r, 0, 0, terms, k_of.data());
        position.resize((size_t)terms);
        const bool shuffled = r.wrappers[0].order == SHUFFLED;
        for (int64_t at = 0; at < terms; ++at) {
            const int64_t k = k_of[(size_t)at];
            position[(size_t)(shuffled ? r.permutation[k] : k)] = at;
        }
        if (lanes) kmap = k_of;
    }

    Positions at() const { return position.empty() ? nullptr : position.data(); }
    const int64_t* map() const { return kmap.empty() ? nullptr : kmap.data(); }
};

}  // namespace gemmsim
