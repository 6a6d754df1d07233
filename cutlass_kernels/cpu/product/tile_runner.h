// Computes one accumulator on one tile: chooses the kernel (kernel_choice*.h), runs it with the orders around it, and adds the addend.
#pragma once
#include "product/summation_orders.h"
#include "product/kernel_choice_compensated.h"
#include "tiles/nearest/binary16.h"

namespace gemmsim {

template <class T> struct Runner {
    const Isa& isa;
    const Request& r;
    const int carrier, nr;
    const int64_t* kmap;  // interleaved sums: the k of each place; else null
    const bool specials;  // an operand of the block may be NaN or infinite
    const EventCounter<T>* events = nullptr;  // counts the events of additions; null: not requested
    // The power of two by which panels of A must be multiplied. It is not 0 only if all kernels that read them take scaled panels.
    int scaled_by = 0;
    MultiTile multi_tile = {};   // how run_multi_tile() computes tiles
    MultiTile truncation = {};   // how the runs of an order are truncated, one tile at a time
    const bool rare_small;       // few sums are below 2^emin, by estimate (small_vectors)
    bool in_fp16 = false;        // the register and the operands are binary16 (uses_fp16)
    bool terms_apart = false;    // panels' lowest bits tell which terms may lead to midpoints, and these are few
    const Isa::Directed directed;
    Choice choice;
    Combination combinations[MAX_WRAPPERS], last;

    // `kind_carrier`: choose_carrier's result. a, b, c: facts about the operands and the addend.
    // `directed_`: that of isa, or a weaker one.
    Runner(const Isa& isa_, const Request& request, int kind_carrier, int nr_, const int64_t* map, const Stats& a, const Stats& b,
           const Stats& c, Isa::Directed directed_)
        : isa(isa_), r(request), carrier(sizeof(T) == 4 ? 0 : 1), nr(nr_), kmap(map), specials(a.non_finite || b.non_finite),
          rare_small(small_vectors(request, a, b, nr_) < RARE_SMALL), directed(directed_) {
        choice = chosen(kind_carrier, a, b, c);
        in_fp16 = uses_fp16(isa, r, choice, a, b);
        const bool draws = r.add.mode >= SR || (!r.fused && r.mul.mode >= SR);
        // A draw belongs to the original index of a term, which LANES kernels do not read.
        if (kmap && draws && choice.kind == LANES) choice.kind = SCALAR;
        if (isa.runs && (!kmap || choice.kind != SCALAR)) choice.runs = choose_runs(r, choice, a, b, directed);
        for (int w = 0; w < r.wrapper_count; ++w)
            combinations[w] = choose_combination(r, r.wrappers[w].cast, kind_carrier, a, b, EMPTY_STATS, isa.directed);
        if (r.init == C_LAST) last = choose_combination(r, r.add, kind_carrier, a, b, c, isa.directed);
    }

    Choice chosen(int kind_carrier, const Stats& a, const Stats& b, const Stats& c) const {
        if (r.method == HARDWARE) return choose_hardware(r, a, b);
        if (r.method == LONG && carrier == 1) return choose_exact(r, a, b);
        if (r.method == BINNED && carrier == 1) return choose_binned(r, a, b);
        if (r.method == INTEGER || r.method == FIXED) return choose_integers(r, a, b, carrier == 0);
        if (r.method) return choose_compensated(r, a, b, kind_carrier, directed);
        return choose(r, a, b, c, kind_carrier, directed);
    }

    void set_counter(const EventCounter<T>* counter) {
        events = counter;
        scaled_by = isa.rescales && !events && r.method == REGISTER && choice.runs.kind < 0 ? choice.scaled_by : 0;
    }
    // Chooses whether and how one call computes several tiles. Callers ask for blocks most of whose rows are in use.
    void choose_multi_tile() {
        if (events || carrier || (choice.runs.kind >= 0 && !in_fp16)) return;
        multi_tile.rescaling = choice.kind <= PLAIN ? Rescaling{true, 0, 0} : choice.rescaling;
        multi_tile.kind = choice.kind;
        multi_tile.way = in_fp16 ? MultiTile::FP16 : multi_tile_way(isa, r, choice, multi_tile.rescaling);
        if (rescales_copies_of_b() ? r.k > MOST_RESCALED : multi_tile.way == MultiTile::TRUNCATE && choice.kind > PLAIN && !rare_small) multi_tile.way = MultiTile::NO;
        if (multi_tile.way == MultiTile::FP16) scaled_by = 0;
        else if (multi_tile.way) scaled_by = multi_tile.rescaling.a;
    }
    bool truncates_nearest() const { return (multi_tile.way == MultiTile::TRUNCATE || truncation.way) && r.add.mode == RNE; }
    // Call this before panels are scaled. `few`: few terms may lead to midpoints. With many such terms only some processors' multi-tile
    // kernels (Isa::multi_tile_checks) are used, and runs are not truncated.
    void check_for_midpoints(bool few) {
        terms_apart = few;
        if (!few && (truncation.way || !isa.multi_tile_checks)) leave_multi_tile();
    }
    // Chooses whether the runs of an order are truncated, which rescales panels of A, too.
    void choose_truncated_runs() {
        if (events || carrier || !r.wrapper_count || choice.runs.kind >= 0 || shortest_run(r) < TRUNCATED_RUNS) return;
        truncation.rescaling = choice.kind <= PLAIN ? Rescaling{true, 0, 0} : choice.rescaling;
        const bool draws_by_place = kmap && r.add.mode == SR;
        if (draws_by_place || !truncates(isa, r, choice, truncation.rescaling) || (choice.kind > PLAIN && !rare_small)) return;
        truncation.way = MultiTile::TRUNCATE;
        truncation.tiles = truncation.panels = 1;
        scaled_by = truncation.rescaling.a;
    }
    // Stops multi-tile computation and truncation. Returns the power of two by which panels of A must be multiplied for what follows.
    int leave_multi_tile() {
        const int before = scaled_by;
        multi_tile.way = truncation.way = MultiTile::NO;
        set_counter(events);
        return scaled_by - before;
    }
    static constexpr int64_t MOST_RESCALED = 1 << 14;  // the most terms of a panel of B that is copied to be rescaled
    // Panels of B in one call. The carrier's own sums read an element of B every other cycle, so their panels must be in the first-level
    // cache.
    int panels_at_once() const { return choice.kind == NONE && r.k > 128 ? 1 : MultiTile::MOST_PANELS[multi_tile.way]; }
    // The power of two by which copies of panels of B are multiplied; 0: there are no copies.
    int rescales_copies_of_b() const { return multi_tile.way == MultiTile::SUMS ? multi_tile.rescaling.b : 0; }

    // Computes `tiles` times `panels` tiles from t on into t.c, which is one matrix. If rescales_copies_of_b() is not 0, panels of B are
    // copies. False: other kernels are faster for these tiles and for what follows.
    bool run_multi_tile(Tile& t, int tiles, int panels) {
        const int64_t size = tiles * MR * panels * nr;
        multi_tile.tiles = tiles;
        multi_tile.panels = panels;
        t.mul = &r.mul;
        t.add = &r.add;
        memset(t.c, 0, sizeof(T) * (size_t)size);
        bool fast = true;
        if (multi_tile.way == MultiTile::FP16) isa.fp16->tiles(t, multi_tile);
        else fast = isa.multi_tile(t, multi_tile);
        fill_up<T>(r, t.k, (T*)t.c, size);
        return fast;
    }

    // Computes the tile into t.c. `addend` has the tile's layout.
    // `counts`: overflows of the tile's elements, rows `counts_row` apart; null: not requested.
    // `scales`: scales of block formats whose elements do not include them. `codes`: codes of a table, instead of t's panels.
    // `window`: panels that have some of the terms, instead of t's.
    // False: runs were truncated, t.c is no result, and other kernels are faster for this tile and for what follows.
    bool run(Tile& t, const T* addend, int64_t* counts = nullptr, int64_t counts_row = 0, const TileScales& scales = TileScales(),
             const TileCodes<T>* codes = nullptr, Window<T>* window = nullptr) {
        T* const c = (T*)t.c;
        t.mul = &r.mul;
        t.add = &r.add;
        t.exact_products = choice.exact_products;
        t.nearest_sums = choice.nearest_sums;
        t.scaled_by = scaled_by;
        const Terms<T> terms = {t, nr, kmap, r.hardware, window};
        if (r.wrapper_count || r.method || codes) {
            const int step = scales.all && r.wrapper_count ? choose_scale_step(r, carrier, scales.all->narrow) : SCALE_SCALAR;
            Compose<T> compose = {isa, r, choice, combinations, terms, carrier, specials, counts, counts_row, scales, step, codes, events};
            if (truncation.way) compose.truncation = &truncation;
            compose.run(0, 0, t.k, c);
            if (scales.all && scales.all->has_tensor) compose.times_tensor_scales(c);
            return !compose.left;
        }
        const Parts<T> parts = {terms, 0, t.k, c};
        start(c, addend);
        if (events) {
            counted(parts, t, addend);
            return true;
        }
        const auto speculatively = [&](const Tile& part) { return isa.runs(choice.carrier, part, Lengths{}, choice.runs); };
        if (choice.runs.kind < 0 || !parts.while_true(speculatively)) {
            if (choice.runs.kind >= 0) start(c, addend);  // speculation failed
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

    // run() of a plain register whose events are counted.
    void counted(const Parts<T>& parts, const Tile& t, const T* addend) const {
        events->run(parts);
        fill_up<T>(r, t.k, (T*)t.c, MR * (int64_t)nr);
        if (r.init == C_LAST) events->combine_sums((T*)t.c, addend, t, r.add, 0, (uint64_t)t.k, SITE_ADD);
    }

    void start(T* c, const T* addend) const {
        if (r.init == C_FIRST && addend) memcpy(c, addend, sizeof(T) * (size_t)(MR * nr));
        else memset(c, 0, sizeof(T) * (size_t)(MR * nr));
    }

    // Adds the addend after all terms: one more step, with index k = K, whose term is the addend itself.
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
