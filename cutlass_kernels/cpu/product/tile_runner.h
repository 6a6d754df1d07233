// Computes one accumulator on one tile: asks the list of rules for the kernel (kernel_table.h), runs it with the orders around it, and adds
// the addend.
#pragma once
#include "product/summation_orders.h"
#include "product/kernel_choice_compensated.h"
#include "product/kernel_choice_runs.h"
#include "tiles/nearest/binary16.h"

namespace gemmsim {

template <class T> struct Runner {
    const Isa& isa;
    const Request& r;
    const int nr;
    const int64_t* kmap;  // interleaved sums: the k of each place; else null
    const bool specials;  // an operand of the block may be NaN or infinite
    const EventCounter<T>* events = nullptr;  // counts the events of additions; null: not requested
    const Isa::Directed directed;
    Choice choice;
    Combination combinations[MAX_WRAPPERS], last;
    // What kernels are chosen for, and which were: `kernel` is the first one whose rule holds, and `fallback` computes tiles for which
    // its speculation fails, or which it does not take.
    Block block = {};
    Kernel kernel, fallback;
    // The power of two by which panels of A must be multiplied. It is not 0 only if all kernels that read them take scaled panels.
    int scaled_by = 0;
    MultiTile multi_tile = {};  // how the kernels of several tiles and of runs with truncated sums compute
    bool fell_back = false;

    static constexpr int LANES_OF_PANELS = sizeof(T) == 4 ? 0 : 1;

    // `kind_carrier`: choose_carrier's result. a, b, c: facts about the operands and the addend.
    // `directed_`: that of isa, or a weaker one.
    Runner(const Isa& isa_, const Request& request, int kind_carrier, int nr_, const int64_t* map, const Stats& a, const Stats& b,
           const Stats& c, Isa::Directed directed_)
        : isa(isa_), r(request), nr(nr_), kmap(map), specials(a.non_finite || b.non_finite), directed(directed_) {
        choice = chosen(kind_carrier, a, b, c);
        choice.in_fp16 = uses_fp16(isa, r, choice, a, b);
        const bool draws = r.add.mode >= SR || (!r.fused && r.mul.mode >= SR);
        // A draw belongs to the original index of a term, which vector kernels of irregular formats do not read.
        if (kmap && draws && choice.path == Path::LANES) choice.path = Path::SCALAR;
        if (isa.runs) choice.runs = choose_runs(r, choice, a, b, directed);
        for (int w = 0; w < r.wrapper_count; ++w) {
            const bool compensated = r.wrappers[w].order == SCHEDULED && r.wrappers[w].pairs;
            combinations[w] = choose_combination(r, r.wrappers[w].cast, kind_carrier, a, b, EMPTY_STATS, isa.directed, compensated);
        }
        if (r.init == C_LAST) last = choose_combination(r, r.add, kind_carrier, a, b, c, isa.directed);
        block.lanes = LANES_OF_PANELS;
        block.permuted = map != nullptr;
        block.few_small = small_vectors(r, a, b, nr) < FEW_SMALL_VECTORS;
    }

    Choice chosen(int kind_carrier, const Stats& a, const Stats& b, const Stats& c) const {
        if (r.method == HARDWARE) return choose_hardware(r, a, b);
        if (r.method == LONG && LANES_OF_PANELS == 1) return choose_exact(r, a, b);
        if (r.method == BINNED && LANES_OF_PANELS == 1) return choose_binned(r, a, b);
        if (r.method == INTEGER || r.method == FIXED) return choose_integers(r, a, b, LANES_OF_PANELS == 0);
        if (r.method) return choose_compensated(r, a, b, kind_carrier, directed);
        return choose(r, a, b, c, kind_carrier, directed);
    }

    // Asks the rules. Call this again when what they ask about has changed; panels of A that have been multiplied by `scaled_by` before
    // must then be multiplied by the returned power of two, too.
    int choose_kernels() {
        const Problem problem = {isa, r, choice, block};
        const int before = scaled_by;
        kernel = choose_kernel(problem);
        const Kernel next = rule_of(kernel).fallback;
        fallback = next == kernel || is_tile_kernel(kernel) ? kernel : choose_kernel(problem, next);
        multi_tile = {};
        scaled_by = 0;
        switch (kernel) {
            case Kernel::BINARY16: multi_tile.way = MultiTile::FP16; break;
            case Kernel::MULTI_TILE: multi_tile.way = MultiTile::SUMS; break;
            case Kernel::RESCALED:
            case Kernel::RESCALED_RUNS: multi_tile.way = MultiTile::TRUNCATE; break;
            default: scaled_by = scaling(problem);
        }
        multi_tile.kind = choice.kind;
        if (multi_tile.way == MultiTile::SUMS || multi_tile.way == MultiTile::TRUNCATE) {
            multi_tile.rescaling = rescaling_of_panels(choice);
            scaled_by = multi_tile.rescaling.a;
        }
        if (kernel == Kernel::RESCALED_RUNS) multi_tile.tiles = multi_tile.panels = 1;
        return scaled_by - before;
    }
    void set_counter(const EventCounter<T>* counter) {
        events = counter;
        block.counts_events = counter != nullptr;
    }
    bool takes_several_tiles() const { return multi_tile.way && kernel != Kernel::RESCALED_RUNS; }
    // Whether the chosen kernel looks for terms that may lead to midpoints, and it is not known yet how many there are.
    bool asks_for_midpoints() const {
        return multi_tile.way == MultiTile::TRUNCATE && r.add.mode == RNE && block.midpoints == Block::UNKNOWN;
    }
    // Whether panels' lowest bits tell which terms may lead to midpoints, and these are few.
    bool filters_midpoints() const { return block.midpoints == Block::FEW; }
    // Chooses again, after a kernel of several tiles or of truncated runs has failed. Returns what choose_kernels() returns.
    int leave_several_tiles() {
        block.several_tiles = false;
        return choose_kernels();
    }
    // Panels of B in one call.
    int panels_at_once() const {
        return choice.kind == Rounding::NATIVE && r.k > MOST_TERMS_OF_TWO_PANELS ? 1 : MultiTile::MOST_PANELS[multi_tile.way];
    }
    // The power of two by which copies of panels of B are multiplied; 0: there are no copies.
    int rescales_copies_of_b() const { return multi_tile.way == MultiTile::SUMS ? multi_tile.rescaling.b : 0; }

    // Adds the kernels that ran to the report.
    void add_to(Report* report) const {
        report->add(kernel, choice.carrier, choice.step, choice.kind);
        if (fell_back) report->add(fallback, choice.carrier, choice.step, choice.kind);
        report->proofs &= choice.proofs;
    }

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
        if (kernel == Kernel::BINARY16) isa.fp16->tiles(t, multi_tile);
        else fast = isa.multi_tile(t, multi_tile);
        if (is_filled_up(r, t.k)) fill_up<T>((T*)t.c, size);
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
        if (r.wrapper_count || r.method || codes || r.hardware.first) {
            const int step = scales.all && r.wrapper_count ? choose_scale_step(r, LANES_OF_PANELS, scales.all->narrow) : SCALE_SCALAR;
            Compose<T> compose = {isa,      r,      choice,     kernel, fallback, combinations, terms,  LANES_OF_PANELS,
                                  specials, counts, counts_row, scales, step,     codes,        events, &multi_tile};
            compose.run(0, 0, t.k, c);
            if (scales.all && scales.all->has_tensor) compose.times_tensor_scales(c);
            fell_back = fell_back || compose.fell_back;
            return !compose.left;
        }
        const Parts<T> parts = {terms, 0, t.k, c};
        start(c, addend);
        if (kernel == Kernel::COUNTING) {
            counted(parts, t, addend);
            return true;
        }
        if (kernel != Kernel::SHORT_RUNS || !speculatively(parts)) {
            if (kernel == Kernel::SHORT_RUNS) start(c, addend);
            plain_run<T>(isa, r, fallback, choice, parts, nr);
        }
        if (is_filled_up(r, t.k)) fill_up<T>(c, MR * (int64_t)nr);
        if (r.init == C_LAST) add_last(t, addend);
        return true;
    }
    // Computes a plain register by the kernel of short runs. False: the speculation failed.
    bool speculatively(const Parts<T>& parts) {
        const bool right = parts.while_true([&](const Tile& part) { return isa.runs(choice.carrier, part, Lengths{}, choice.runs); });
        fell_back = fell_back || !right;
        return right;
    }

    // run() of a plain register whose events are counted.
    void counted(const Parts<T>& parts, const Tile& t, const T* addend) const {
        events->run(parts);
        if (is_filled_up(r, t.k)) fill_up<T>((T*)t.c, MR * (int64_t)nr);
        if (r.init == C_LAST) events->combine_sums((T*)t.c, addend, t, r.add, 0, (uint64_t)t.k, SITE_ADD);
    }

    void start(T* c, const T* addend) const {
        if (r.init == C_FIRST && addend) memcpy(c, addend, sizeof(T) * (size_t)(MR * nr));
        else memset(c, 0, sizeof(T) * (size_t)(MR * nr));
    }

    // Adds the addend after all terms: one more step, with index k = K, whose term is the addend itself.
    void add_last(const Tile& t, const T* addend) const {
        T* const c = (T*)t.c;
        if (last.kind == Combine::STOCHASTIC)
            return isa.combine_draws(LANES_OF_PANELS, c, addend, t, r.add, (uint64_t)t.k, SITE_ADD, last.odd);
        if (last.kind != Combine::SCALAR) return isa.combine(LANES_OF_PANELS, c, addend, MR * (int64_t)nr, r.add, last.kind, last.odd);
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < t.cols; ++j) {
                T& s = c[i * nr + j];
                const uint32_t R = step_bits(r.add, t, i, j, t.k, SITE_ADD);
                s = (T)sum_of((double)s, (double)addend[i * nr + j], r.add, R, last.odd);
            }
    }
};

}  // namespace gemmsim
