// What happens at the additions of a product, counted element by element beside its value (gemmsim.count_events).
#pragma once
#include <stddef.h>
#include <vector>
#include "gemmsim/events.h"
#include "isa_table.h"

namespace gemmsim {

// `counts`: of each element, (EVENTS, batch..., m, n) contiguous, added to. `least`: the smallest normal of the register, then
// of each wrapper's cast.
struct EventArgs {
    int64_t* counts;
    double least[1 + MAX_WRAPPERS];
};

// What a kernel found out of the k terms of a panel at `of`, for other tiles that have them (tiles/counting/count_native.h).
struct PanelBounds {
    const void* of = nullptr;
    int64_t k = 0;
    std::vector<float> bit, least, most;
};

// Of the panel of B that tiles below one another have, and of those of A, which come in the same order for the next panel of B.
struct BlockPanels {
    PanelBounds b;
    std::vector<PanelBounds> a;
    size_t next = 0;

    // That of A's `k` terms at `of`; new, with of = null, the first time.
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

// Of one tile: counts[event * plane + element], elements as in the tile's c.
struct EventTile {
    int64_t* counts;
    int64_t plane;
    double least;  // the smallest normal of the cast that rounds
    // Where steps may be taken in few instructions (tiles/counting/count_fast.h): in lanes of 1 float, 2 double, 3 float, which is the register
    // (tiles/counting/count_native.h), 4 float, which holds the products (tiles/counting/count_exact_products.h), 5 float, where the planner has proved much
    // (tiles/counting/count_irregular.h); 0: nowhere. `known`: what the carrier loses is seen in its sums; of 3: it holds the products; of 5: no
    // product hides a register.
    int method_of_count;
    bool known;
    BlockPanels* panels;
    int64_t* of(int event, int64_t element) const { return counts + event * plane + element; }
};

// One instruction set's functions, in double lanes. `panel`: 0 float, 1 double.
struct EventKernels {
    // a register's or a compensated sum's terms, from the tile's c on
    void (*run)(int panel, const Tile& t, int nr, int method, bool fused, const EventTile& into);
    // s = R(s + x) of a tile's elements; the draw of a stochastic cast is that of `site` at place `index`
    void (*sum)(int panel, void* s, const void* x, const Tile& t, int nr, const Cast& c, uint64_t index, int site, const EventTile& into);
    // the tile's terms in runs of `size` from +0, then adjacent pairs of them and of their sums by `c`, into its c, of float panels; both
    // casts to nearest even, and lemma A holds for them. Null where sums in pairs have no kernel of their own
    void (*pairs)(const Tile& t, int nr, int64_t size, const Cast& c, const EventTile& products, const EventTile& sums);
};

const EventKernels& event_kernels_baseline();
const EventKernels& event_kernels_neon();
const EventKernels& event_kernels_avx2();
const EventKernels& event_kernels_avx512();

}  // namespace gemmsim
