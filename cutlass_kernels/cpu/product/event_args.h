// This file has the records that count the events at the additions of a product, element by element
// (gemmsim.count_events).
#pragma once
#include <stddef.h>
#include <vector>
#include "gemmsim/events.h"
#include "isa_table.h"

namespace gemmsim {

// `counts` has a number for each event and element, (EVENTS, batch..., m, n) contiguous, to which the kernels add.
// `least` has the smallest normal number of the register, then that of each wrapper's cast.
struct EventArgs {
    int64_t* counts;
    double least[1 + MAX_WRAPPERS];
};

// Bounds of the k terms of the panel at `of`, found by one tile's kernel. Other tiles with the same panel reuse them
// (tiles/counting/count_native.h).
struct PanelBounds {
    const void* of = nullptr;
    int64_t k = 0;
    std::vector<float> bit, least, most;
};

// Bounds of the panel of B that a column of tiles shares, and of their panels of A. For the next panel of B, tiles
// visit the panels of A in the same order.
struct BlockPanels {
    PanelBounds b;
    std::vector<PanelBounds> a;
    size_t next = 0;

    // Returns the bounds of A's `k` terms at `of`. The first time they are new, with of = null.
    PanelBounds& of_a(const void* of, int64_t k) {
        for (size_t tried = 0; tried < a.size(); ++tried, ++next) {
            if (next >= a.size()) next = 0;
            if (a[next].of == of && a[next].k == k) return a[next++];
        }
        a.emplace_back();
        next = a.size();
        return a.back();
    }
};

// The kernel that counts the steps of a register: every step in double lanes, rounded to odd first, or a shorter kernel.
enum class CountBy : int {
    STEPS,           // tiles/counting/count_events.cpp
    FLOATS,          // float lanes (count_fast.h)
    DOUBLES,         // double lanes (count_fast.h)
    NATIVE,          // float lanes, where float is the register's format (count_native.h)
    EXACT_PRODUCTS,  // float lanes, where float holds the products (count_exact_products.h)
    MULTIPLES        // float lanes, where the planner proved that sums stay in the format (count_multiples.h)
};

// The counts of one tile: counts[event * plane + element], with elements ordered as in the tile's c.
struct EventTile {
    int64_t* counts;
    int64_t plane;
    double least;  // the smallest normal number of the cast that rounds
    // `known`: the carrier's sums show what the carrier loses. For NATIVE: float holds the products. For MULTIPLES: no
    // product is so large that the carrier's sum loses the register.
    CountBy by;
    bool known;
    BlockPanels* panels;
    int64_t* of(int event, int64_t element) const { return counts + event * plane + element; }
};

// The counting kernels of one instruction set. They use double lanes unless EventTile names a shorter kernel. `panel`
// is 0 for float and 1 for double.
struct EventKernels {
    // Adds the terms of a register or a compensated sum to the tile's c.
    void (*run)(int panel, const Tile& t, int nr, int method, bool fused, const EventTile& into);
    // s = R(s + x) for a tile's elements. A stochastic cast draws in stream `site` at step `index`.
    void (*sum)(int panel, void* s, const void* x, const Tile& t, int nr, const Cast& c, uint64_t index, int site, const EventTile& into);
    // Sums the tile's terms in segments of `size` from +0, then combines adjacent pairs of these sums, and of the
    // results, by `c`, into the tile's c. Panels are floats, both casts round to nearest even, and lemma A holds for
    // them. Null: this instruction set has no such kernel.
    void (*pairs)(const Tile& t, int nr, int64_t size, const Cast& c, const EventTile& products, const EventTile& sums);
};

const EventKernels& event_kernels_baseline();
const EventKernels& event_kernels_neon();
const EventKernels& event_kernels_avx2();
const EventKernels& event_kernels_avx512();

}  // namespace gemmsim
