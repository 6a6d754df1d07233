// One accumulator on one tile: the kernel that the planner chose, the orders around it, the addend.
#pragma once
#include "product/summation_orders.h"
#include "product/kernel_choice_compensated.h"
#include "tiles/nearest/binary16.h"

namespace gemmsim {

template <class T> struct Runner {
    const Isa& isa;
    const Request& r;
    const int carrier, nr;
    const int64_t* kmap;  // where lanes are interleaved, the k of each place; else null
    const bool specials;  // an operand of the block may be NaN or infinite
    const EventCounter<T>* events = nullptr;  // additions are watched, by it
    int scaled_by = 0;                      // by what panels of A are to be multiplied: where all that reads them are such tiles
    MultiTile multi_tile = {};                  // how tiles are computed by run_multi_tile()
    MultiTile truncation = {};                     // how the runs of an order are, a tile at a time
    const bool rare_small;             // sums below 2^emin, most likely
    bool in_fp16 = false;              // the register is of binary16, and so are the operands
    bool terms_apart = false;            // the lowest bits of panels say which terms may lead to midpoints, and few do
    const Isa::Directed directed;
    Choice choice;
    Combination combinations[MAX_WRAPPERS], last;

    // `kind_carrier`: choose_carrier's; a, b, c: facts about the operands and the addend; `directed_`: of isa, or less.
    Runner(const Isa& isa_, const Request& request, int kind_carrier, int nr_, const int64_t* map, const Stats& a, const Stats& b,
           const Stats& c, Isa::Directed directed_)
        : isa(isa_), r(request), carrier(sizeof(T) == 4 ? 0 : 1), nr(nr_), kmap(map), specials(a.non_finite || b.non_finite),
          rare_small(small_vectors(request, a, b, nr_) < RARE_SMALL), directed(directed_) {
        choice = chosen(kind_carrier, a, b, c);
        in_fp16 = uses_fp16(isa, r, choice, a, b);
        const bool draws = r.add.mode >= SR || (!r.fused && r.mul.mode >= SR);
        if (kmap && draws && choice.kind == LANES) choice.kind = SCALAR;  // draws by original index
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
    // Whether tiles may be computed side by side, in blocks whose rows are in use.
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
    // Before panels are changed: only some processors' tiles can do with many, and no runs.
    void check_for_midpoints(bool few) {
        terms_apart = few;
        if (!few && (truncation.way || !isa.multi_tile_checks)) leave_multi_tile();
    }
    // The same of the runs of an order, whose panels of A are sunk, too.
    void choose_truncated_runs() {
        if (events || carrier || !r.wrapper_count || choice.runs.kind >= 0 || shortest_run(r) < TRUNCATED_RUNS) return;
        truncation.rescaling = choice.kind <= PLAIN ? Rescaling{true, 0, 0} : choice.rescaling;
        const bool draws_by_place = kmap && r.add.mode == SR;
        if (draws_by_place || !truncates(isa, r, choice, truncation.rescaling) || (choice.kind > PLAIN && !rare_small)) return;
        truncation.way = MultiTile::TRUNCATE;
        truncation.tiles = truncation.panels = 1;
        scaled_by = truncation.rescaling.a;
    }
    // Not any more; by what panels of A are to be multiplied then.
    int leave_multi_tile() {
        const int before = scaled_by;
        multi_tile.way = truncation.way = MultiTile::NO;
        set_counter(events);
        return scaled_by - before;
    }
    static constexpr int64_t MOST_RESCALED = 1 << 14;  // terms of panels of B that are copied
    // Panels of B at once: the carrier's own sums, which take an element of B every other cycle, need them in the first-level cache.
    int panels_at_once() const { return choice.kind == NONE && r.k > 128 ? 1 : MultiTile::MOST_PANELS[multi_tile.way]; }
    // By what they are to be sunk in copies.
    int rescales_copies_of_b() const { return multi_tile.way == MultiTile::SUMS ? multi_tile.rescaling.b : 0; }

    // `tiles` times `panels` tiles from t on into t.c, one matrix; panels of B are copies where rescales_copies_of_b() is not 0. False:
    // other kernels are faster for them and for what follows.
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

    void counted(const Parts<T>& parts, const Tile& t, const T* addend) const {
        events->run(parts);
        fill_up<T>(r, t.k, (T*)t.c, MR * (int64_t)nr);
        if (r.init == C_LAST) events->combine_sums((T*)t.c, addend, t, r.add, 0, (uint64_t)t.k, SITE_ADD);
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
