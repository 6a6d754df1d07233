// One accumulator on one tile: the kernel that the planner chose, the orders around it, the addend.
#pragma once
#include "product/compose.h"
#include "product/plan_compensated.h"
#include "tiles/binary16.h"

namespace gemmsim {

template <class T> struct Runner {
    const Isa& isa;
    const Request& r;
    const int carrier, nr;
    const int64_t* kmap;  // where lanes are interleaved, the k of each place; else null
    const bool specials;  // an operand of the block may be NaN or infinite
    const Watcher<T>* events = nullptr;  // additions are watched, by it
    int lifted = 0;                      // by what panels of A are to be multiplied: where all that reads them are such tiles
    Beside beside = {};                  // how tiles are computed by run_beside()
    Beside cut = {};                     // how the runs of an order are, a tile at a time
    const bool seldom_small;             // sums below 2^emin, most likely
    bool in_halves = false;              // the register is of binary16, and so are the operands
    bool terms_apart = false;            // the lowest bits of panels say which terms may lead to midpoints, and few do
    const Isa::Directed directed;
    Choice choice;
    Meeting meetings[MAX_WRAPPERS], last;

    // `kind_carrier`: choose_carrier's; a, b, c: facts about the operands and the addend; `directed_`: of isa, or less.
    Runner(const Isa& isa_, const Request& request, int kind_carrier, int nr_, const int64_t* map, const Stats& a, const Stats& b,
           const Stats& c, Isa::Directed directed_)
        : isa(isa_), r(request), carrier(sizeof(T) == 4 ? 0 : 1), nr(nr_), kmap(map), specials(a.non_finite || b.non_finite),
          seldom_small(small_vectors(request, a, b, nr_) < SELDOM_SMALL), directed(directed_) {
        choice = chosen(kind_carrier, a, b, c);
        in_halves = halves(isa, r, choice, a, b);
        const bool draws = r.add.mode >= SR || (!r.fused && r.mul.mode >= SR);
        if (kmap && draws && choice.kind == LANES) choice.kind = SCALAR;  // draws by original index
        if (isa.runs && (!kmap || choice.kind != SCALAR)) choice.runs = choose_runs(r, choice, a, b, directed);
        for (int w = 0; w < r.wrapper_count; ++w)
            meetings[w] = choose_meeting(r, r.wrappers[w].cast, kind_carrier, a, b, EMPTY_STATS, isa.directed);
        if (r.init == C_LAST) last = choose_meeting(r, r.add, kind_carrier, a, b, c, isa.directed);
    }

    Choice chosen(int kind_carrier, const Stats& a, const Stats& b, const Stats& c) const {
        if (r.method == HARDWARE) return choose_hardware(r, a, b);
        if (r.method == LONG && carrier == 1) return choose_exact(r, a, b);
        if (r.method == BINNED && carrier == 1) return choose_binned(r, a, b);
        if (r.method == INTEGER || r.method == FIXED) return choose_integers(r, a, b, carrier == 0);
        if (r.method) return choose_compensated(r, a, b, kind_carrier, directed);
        return choose(r, a, b, c, kind_carrier, directed);
    }

    void watch(const Watcher<T>* watcher) {
        events = watcher;
        lifted = isa.lifts && !events && r.method == REGISTER && choice.runs.kind < 0 ? choice.lift : 0;
    }
    // Whether tiles may be computed side by side, in blocks whose rows are in use.
    void look_beside() {
        if (events || carrier || (choice.runs.kind >= 0 && !in_halves)) return;
        beside.sink = choice.kind <= PLAIN ? Sink{true, 0, 0} : choice.sink;
        beside.kind = choice.kind;
        beside.way = in_halves ? Beside::HALVES : way_beside(isa, r, choice, beside.sink);
        if (copies_sunk() ? r.k > MOST_SUNK : beside.way == Beside::CUT && choice.kind > PLAIN && !seldom_small) beside.way = Beside::NO;
        if (beside.way == Beside::HALVES) lifted = 0;
        else if (beside.way) lifted = beside.sink.a;
    }
    bool cuts_nearest() const { return (beside.way == Beside::CUT || cut.way) && r.add.mode == RNE; }
    // Before panels are changed: only some processors' tiles can do with many, and no runs.
    void look_for_midpoints(bool few) {
        terms_apart = few;
        if (!few && (cut.way || !isa.beside_watches)) leave_beside();
    }
    // The same of the runs of an order, whose panels of A are sunk, too.
    void look_at_runs() {
        if (events || carrier || !r.wrapper_count || choice.runs.kind >= 0 || shortest_run(r) < CUT_RUNS) return;
        cut.sink = choice.kind <= PLAIN ? Sink{true, 0, 0} : choice.sink;
        const bool draws_by_place = kmap && r.add.mode == SR;
        if (draws_by_place || !cuts(isa, r, choice, cut.sink) || (choice.kind > PLAIN && !seldom_small)) return;
        cut.way = Beside::CUT;
        cut.tiles = cut.panels = 1;
        lifted = cut.sink.a;
    }
    // Not any more; by what panels of A are to be multiplied then.
    int leave_beside() {
        const int before = lifted;
        beside.way = cut.way = Beside::NO;
        watch(events);
        return lifted - before;
    }
    static constexpr int64_t MOST_SUNK = 1 << 14;  // terms of panels of B that are copied
    // Panels of B at once: the carrier's own sums, which take an element of B every other cycle, need them in the first-level cache.
    int panels_beside() const { return choice.kind == NONE && r.k > 128 ? 1 : Beside::MOST_PANELS[beside.way]; }
    // By what they are to be sunk in copies.
    int copies_sunk() const { return beside.way == Beside::SUMS ? beside.sink.b : 0; }

    // `tiles` times `panels` tiles from t on into t.c, one matrix; panels of B are copies where copies_sunk() is not 0. False:
    // other kernels are faster for them and for what follows.
    bool run_beside(Tile& t, int tiles, int panels) {
        const int64_t size = tiles * MR * panels * nr;
        beside.tiles = tiles;
        beside.panels = panels;
        t.mul = &r.mul;
        t.add = &r.add;
        memset(t.c, 0, sizeof(T) * (size_t)size);
        bool fast = true;
        if (beside.way == Beside::HALVES) isa.halves->tiles(t, beside);
        else fast = isa.beside(t, beside);
        fill_up<T>(r, t.k, (T*)t.c, size);
        return fast;
    }

    // Into t.c; `addend` has the tile's layout. `counts`: overflows of the tile's elements, rows `counts_row` apart, or null.
    // `scales`: of block formats whose elements come without them. `codes`: of a table, instead of t's panels. False: runs were cut, and
    // other kernels are faster for them and for what follows.
    // `window`: panels that hold some of the terms, instead of t's.
    bool run(Tile& t, const T* addend, int64_t* counts = nullptr, int64_t counts_row = 0, const TileScales& scales = TileScales(),
             const TileCodes<T>* codes = nullptr, Window<T>* window = nullptr) {
        T* const c = (T*)t.c;
        t.mul = &r.mul;
        t.add = &r.add;
        t.exact_products = choice.exact_products;
        t.nearest_sums = choice.nearest_sums;
        t.lift = lifted;
        const Terms<T> terms = {t, nr, kmap, r.hardware, window};
        if (r.wrapper_count || r.method || codes) {
            const int step = scales.all && r.wrapper_count ? choose_scale_step(r, carrier, scales.all->narrow) : SCALE_SCALAR;
            Compose<T> compose = {isa, r, choice, meetings, terms, carrier, specials, counts, counts_row, scales, step, codes, events};
            if (cut.way) compose.cut = &cut;
            compose.run(0, 0, t.k, c);
            if (scales.all && scales.all->has_tensor) compose.times_tensor_scales(c);
            return !compose.left;
        }
        const Parts<T> parts = {terms, 0, t.k, c};
        start(c, addend);
        if (events) {
            watched(parts, t, addend);
            return true;
        }
        const auto by_wager = [&](const Tile& part) { return isa.runs(choice.carrier, part, Lengths{}, choice.runs); };
        if (choice.runs.kind < 0 || !parts.while_true(by_wager)) {
            if (choice.runs.kind >= 0) start(c, addend);  // wager lost
            if (choice.kind == SCALAR) scalar_tile<T>(parts, r, nr);
            else
                parts.each([&](const Tile& part) {
                    if (choice.kind == LANES) isa.grids(part, r.fused);
                    else isa.tile[choice.carrier][choice.step][choice.kind](part);
                });
        }
        fill_up<T>(r, t.k, c, MR * (int64_t)nr);
        if (r.init == C_LAST) add_last(t, addend);
        return true;
    }

    void watched(const Parts<T>& parts, const Tile& t, const T* addend) const {
        events->run(parts);
        fill_up<T>(r, t.k, (T*)t.c, MR * (int64_t)nr);
        if (r.init == C_LAST) events->meet((T*)t.c, addend, t, r.add, 0, (uint64_t)t.k, SITE_ADD);
    }

    void start(T* c, const T* addend) const {
        if (r.init == C_FIRST && addend) memcpy(c, addend, sizeof(T) * (size_t)(MR * nr));
        else memset(c, 0, sizeof(T) * (size_t)(MR * nr));
    }

    // One more step, k = K, whose term is the addend as it is.
    void add_last(const Tile& t, const T* addend) const {
        T* const c = (T*)t.c;
        if (last.kind == RANDOM) return isa.combine_draws(carrier, c, addend, t, r.add, (uint64_t)t.k, SITE_ADD, last.odd);
        if (last.kind != SCALAR) return isa.combine(carrier, c, addend, MR * (int64_t)nr, r.add, last.kind, last.odd);
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < t.cols; ++j) {
                T& s = c[i * nr + j];
                const uint32_t R = step_bits(r.add, t, i, j, t.k, SITE_ADD);
                s = (T)sum_of((double)s, (double)addend[i * nr + j], r.add, R, last.odd);
            }
    }
};

}  // namespace gemmsim
