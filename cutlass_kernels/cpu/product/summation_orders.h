// Orders of summation on one tile: computes runs of terms with the innermost accumulator and combines their partial sums.
// tile_runner.h uses this for all accumulators but plain registers without an order, and for operands that are codes of a table.
#pragma once
#include <string.h>
#include <vector>
#include "gemmsim/philox.h"
#include "product/binned.h"
#include "product/scratch.h"
#include "product/event_counter.h"
#include "product/hardware_model.h"
#include "product/lookup.h"
#include "product/kernel_choice_totals.h"
#include "product/run_kernels.h"
#include "product/scale_groups.h"
#include "product/scheduled_sums.h"

namespace gemmsim {

// One accumulator on one tile, and what all its orders share.
template <class T> struct Compose {
    const Isa& isa;
    const Request& r;
    const Choice& choice;
    Kernel kernel, fallback;          // as in Runner
    const Combination* combinations;  // one for each wrapper
    const Terms<T>& terms;
    int carrier;
    bool specials;            // an operand of the block may be NaN or infinite
    int64_t* counts = nullptr;  // overflows of the tile's elements, rows `counts_row` apart; null: not requested
    int64_t counts_row = 0;
    TileScales scales = {};
    int scale_step = SCALE_SCALAR;
    const TileCodes<T>* codes = nullptr;      // codes of a table's terms, instead of panels
    const EventCounter<T>* events = nullptr;  // counts the events of additions; null: not requested
    MultiTile* truncation = nullptr;          // RESCALED_RUNS: how sums of runs are truncated
    const Tile& base = terms.base;
    const int nr = terms.nr;
    mutable bool left = false;       // truncation is slow for these data and was left; no result is valid
    mutable bool fell_back = false;  // `fallback` computed some of the runs
    mutable int64_t runs = 0;
    mutable Bins bins = {};
    mutable std::vector<int64_t> spills = {};
    mutable std::vector<double> registers = {};
    mutable int64_t sums[MAX_WRAPPERS] = {}, totals[MAX_WRAPPERS] = {};  // combinations so far, which index their draws

    int64_t count() const { return MR * (int64_t)nr; }
    void clear(T* out) const { memset(out, 0, sizeof(T) * (size_t)count()); }

    // Whether the kernel of short runs computes the runs of an order together with their combinations.
    bool has_combined_runs() const { return kernel == Kernel::SHORT_RUNS && choice.runs.shape != RunsPlan::ONE; }

    // Computes the innermost accumulator over terms [begin, end), from +0.
    void base_case(int64_t begin, int64_t end, T* out) const {
        clear(out);
        const Parts<T> all = {terms, begin, end, out};
        if (r.method == HARDWARE || !r.hardware.first) return base_part(all, is_filled_up(r, end - begin));
        pieces(all, [&](const Parts<T>& piece, bool filled_up) { base_part(piece, filled_up); });
    }
    void base_part(const Parts<T>& parts, bool filled_up) const {
        run_kernel(has_combined_runs() ? fallback : kernel, parts);
        fell_back = fell_back || has_combined_runs();
        if (filled_up) fill_up<T>(parts.out, count());
    }
    // Calls piece(parts, filled_up) for the terms of the first tile, if zeros fill it up, and for the rest. The register carries on.
    template <class F> void pieces(const Parts<T>& all, const F& piece) const {
        const int64_t rest = r.hardware.first ? all.count() % r.hardware.first : 0;
        if (rest) piece(Parts<T>{terms, all.begin, all.begin + rest, all.out}, true);
        if (rest < all.count() || !rest) piece(Parts<T>{terms, all.begin + rest, all.end, all.out}, is_filled_up(r, all.count() - rest));
    }
    void run_kernel(Kernel k, const Parts<T>& parts) const {
        switch (k) {
            case Kernel::COUNTING: return events->run(parts);
            case Kernel::TABLE_TERMS: return parts.each([&](const Tile& t) { sum_terms(t, *codes, t.k0); });
            case Kernel::RESCALED_RUNS: return truncated_run(parts);
            case Kernel::SHORT_RUNS: return one_run(parts);
            case Kernel::COMPENSATED: return compensated(parts);
            case Kernel::EXACT_IN_FLOAT64: return exact_run(parts);
            case Kernel::SLICED: return sliced_run(parts);
            case Kernel::LONG_REGISTER: return exact_tile<T>(parts, r, nr, runs++, base_case_site());
            case Kernel::BINNED_FLOAT64: return binned_in_doubles(parts);
            case Kernel::BINNED: return binned(parts);
            case Kernel::INTEGERS_IN_CARRIER: return in_tiles(parts, choice.carrier);
            case Kernel::INTEGER_LANES: return integers(parts);
            case Kernel::INTEGER_SCALAR: return integer_tile<T>(parts, r, nr, counts, counts_row);
            case Kernel::SCALED_MATRIX_UNIT:
            case Kernel::SCALED_MATRIX_UNIT_SCALAR: return scaled_instructions(parts, k == Kernel::SCALED_MATRIX_UNIT);
            case Kernel::MATRIX_UNIT:
            case Kernel::MATRIX_UNIT_SCALAR: return instructions(parts, k == Kernel::MATRIX_UNIT);
            default: return plain_run<T>(isa, r, k, choice, parts, nr);
        }
    }
    void truncated_run(const Parts<T>& parts) const {
        ThreadOfCall::poll(parts.count());
        left = left || !isa.multi_tile(terms.tile(parts.begin, parts.end, parts.out), *truncation);
    }
    // The carrier's own sums of products.
    void in_tiles(const Parts<T>& parts, int lanes) const {
        const TileFn function = isa.tile[tile_place(Kernel::PLAIN)][lanes][FMA_NEAR][(int)Rounding::NATIVE];
        parts.each([&](const Tile& t) { function(t); });
    }

    // Adds a table's terms from `begin` on to the register, all rows of the tile at once.
    void sum_terms(const Tile& t, const TileCodes<T>& x, int64_t begin) const {
        constexpr int64_t SLICE = 16;
        alignas(64) T terms[SLICE * MR * 64];
        Tile slice = t;
        slice.b = terms;
        for (int64_t k = 0; k < t.k; k += SLICE) {
            slice.k = t.k - k < SLICE ? t.k - k : SLICE;
            slice.k0 = t.k0 + k;
            slice.kmap = t.kmap ? t.kmap + k : nullptr;
            x.table->look_up(x.a + begin + k, x.a_row, t.rows, x.b + (begin + k) * nr, slice.k, nr, terms);
            add_terms(isa)(carrier, slice, choice.kind, choice.step != FMA_NEAR);
        }
    }

    // A function of its own, so that other accumulators do not have its buffers on their stack.
    __attribute__((noinline)) void sliced_run(const Parts<T>& parts) const {
        SlicedTile<T>(isa, parts, r, choice.slices, nr).run(runs++, base_case_site());
    }

    void one_run(const Parts<T>& parts) const {
        if (parts.while_true([&](const Tile& t) { return isa.runs(carrier, t, Lengths{}, choice.runs); })) return;
        clear(parts.out);
        fell_back = true;
        plain_run<T>(isa, r, fallback, choice, parts, nr);
    }

    void compensated(const Parts<T>& parts) const {
        alignas(64) T rest[MR * 64];
        const auto all_by = [&](CompensatedRounding how) {
            const CompensatedFn kernel = isa.compensated(choice.carrier, r.method, how, r.arithmetic != FP32);
            return parts.while_true([&](Tile t) {
                t.rest = rest;
                return kernel(t, choice.speculation, !r.fused);
            });
        };
        if (!all_by({choice.kind, choice.wide})) all_by(choice.fallback);
    }

    // The long accumulator (as exact_tile()) where double has every sum exactly.
    void exact_run(const Parts<T>& parts) const {
        in_tiles(parts, 1);
        const int64_t index = runs++;
        T* const c = parts.out;
        if (r.add.mode < SR) {
            if (!is_native(r.add, 1)) isa.round(1, c, count(), r.add, 0, 0, 0);
            return;
        }
        each(
            [&](int i, int j) {
                return round_value((double)c[i * nr + j], r.add,
                                   draw_step(base.seed, base.row0 + i, base.col0 + j, (uint64_t)index, base_case_site(), r.add.rbits));
            },
            c);
    }

    void integers(const Parts<T>& parts) const {
        const bool inside = choice.proofs & NO_OVERFLOW;
        alignas(64) double sums[MR * 64];
        memset(sums, 0, sizeof(double) * (size_t)count());
        parts.each([&](Tile t) {
            t.c = sums;
            isa.integers(carrier, choice.carrier, t, nr, choice.integers);
        });
        const double back = r.method == FIXED ? ldexp(1.0, -r.integer.frac) : 1.0;
        const bool fold = !choice.integers.clamp && !inside;
        for (int64_t i = 0; i < base.rows * nr; ++i) {
            const double s = choice.carrier == 1 ? sums[i] : (double)((const float*)sums)[i];
            parts.out[i] = (T)((fold ? (double)folded((int64_t)s, r.integer) : s) * back);
        }
    }

    int base_case_site() const { return SITE_COMBINE + 32 * (r.wrapper_count ? depth(r.wrapper_count) : 0); }

    BinnedTile<T> binned_tile(const Parts<T>& parts) const {
        if (spills.empty()) spills.assign((size_t)count(), 0);
        return {parts, r, nr, base_case_site(), bins, spills.data()};
    }
    void binned(const Parts<T>& parts) const {
        if (bins.at.empty()) bins.at.assign(Bins::COUNT, Bin{0, 0});
        binned_tile(parts).run();
    }
    void binned_in_doubles(const Parts<T>& parts) const {
        if (registers.empty()) registers.assign((size_t)(choice.bins.count * nr), 0.0);
        const BinnedTile<T> tile = binned_tile(parts);
        BinnedRow<T>{tile, choice.bins, registers.data()}.run();
    }

    // Steps of a block-scaled matrix instruction.
    void scaled_instructions(const Parts<T>& parts, bool lanes) const {
        NotFinite<T> specials_met = {};
        if (lanes) in_instruction_kernel(parts, specials_met);
        for (int i = 0; i < base.rows; ++i)
            for (int j = 0; j < base.cols; ++j) {
                if (lanes && !specials_met.row[i] && !specials_met.column[j]) continue;
                ScaledDot dot = {{r.hardware}, scales, i, j};
                each_step(parts, [&](const Tile& t, int64_t k, int n) {
                    dot.step((const T*)t.a + k * MR + i, MR, (const T*)t.b + k * nr + j, nr, t.k0 + k, n);
                });
                parts.out[i * nr + j] = (T)dot.dot.c;
            }
    }

    // The vector form of scaled_instructions(), for finite operands. It marks rows and columns that have others.
    void in_instruction_kernel(const Parts<T>& parts, NotFinite<T>& specials_met) const {
        const HardwareModel& m = r.hardware;
        parts.each([&](const Tile& t) {
            TileGroups groups(scales, m, t, nr);
            for (int i = 0; i < t.rows; ++i) specials_met.row[i] = specials_met.row[i] || groups.nan_row[i];
            for (int j = 0; j < t.cols; ++j) specials_met.column[j] = specials_met.column[j] || groups.nan_col[j];
            if (specials) specials_met.check(t, nr);
            scale_kernels(isa).instructions(t, m, groups.all());
        });
    }

    // Whether zeros that fill up the first tile, which is `piece` of `all`, are a step of their own. Such a step may cut the register, and
    // further ones change nothing.
    bool has_zero_step(const Parts<T>& piece, const Parts<T>& all) const {
        const int64_t step = r.hardware.products, rest = r.hardware.first ? all.count() % r.hardware.first : 0;
        return rest && piece.begin == all.begin && (rest + step - 1) / step * step < r.hardware.first;
    }
    static constexpr T ZEROS[64] = {};
    // One term of zeros, which is added to the sums in `out`.
    Tile zero_term(T* out) const {
        Tile t = base;
        t.a = t.b = ZEROS;
        t.c = out;
        t.k = 1;
        t.kmap = nullptr;
        t.low_a = t.low_b = nullptr;
        t.field_a = nullptr, t.field_b = nullptr;
        return t;
    }

    // Calls step(tile, k, n) for each step of the instruction, which has n terms from the tile's k on.
    template <class F> void each_step(const Parts<T>& parts, const F& step) const {
        const int64_t size = r.hardware.products;
        parts.each([&](const Tile& t) {
            for (int64_t k = 0; k < t.k; k += size) step(t, k, (int)(t.k - k < size ? t.k - k : size));
        });
    }

    // Steps of a matrix instruction. The vector kernels of all kinds but HW_TREE take finite operands only. Elements that have a NaN or an
    // infinity in their row or column are computed again, one by one.
    void instructions(const Parts<T>& parts, bool lanes) const {
        const bool any = r.hardware.kind == HW_TREE;
        NotFinite<T> specials_met = {};
        if (lanes)
            pieces(parts, [&](const Parts<T>& piece, bool filled_up) {
                const auto steps = [&](const Tile& t) {
                    if (sizeof(T) == 4) isa.hardware(t, r.hardware, choice.kept, choice.carrier == 1);
                    else instructions_in_floats(isa, t, nr, r.hardware, choice);
                };
                piece.each([&](const Tile& t) {
                    if (specials && !any) specials_met.check(t, nr);
                    steps(t);
                });
                if (has_zero_step(piece, parts)) steps(zero_term(parts.out));
                if (filled_up) fill_up<T>(parts.out, count());
            });
        if (lanes && (any || !specials)) return;
        HardwareModel m = r.hardware;
        m.kept = choice.kept;
        const Cast to = conversion(m, r.add);
        for (int i = 0; i < base.rows; ++i)
            for (int j = 0; j < base.cols; ++j) {
                if (lanes && !specials_met.row[i] && !specials_met.column[j]) continue;
                HardwareDot dot = {m, 0, &to};
                pieces(parts, [&](const Parts<T>& piece, bool filled_up) {
                    each_step(piece, [&](const Tile& t, int64_t k, int n) {
                        dot.step((const T*)t.a + k * MR + i, MR, (const T*)t.b + k * nr + j, nr, n);
                    });
                    if (has_zero_step(piece, parts)) dot.step(ZEROS, 1, ZEROS, 1, 1);
                    if (filled_up) dot.c += 0.0;
                });
                parts.out[i * nr + j] = (T)dot.c;
            }
    }
    // The levels of random bits around a level of wrappers. A permutation combines no partial sums.
    int depth(int level) const {
        int found = 0;
        for (int w = 0; w < level; ++w) found += r.wrappers[w].order != SHUFFLED && r.wrappers[w].order != SCHEDULED;
        return found + (r.schedule ? (int)r.schedule->levels : 0);
    }

    void combine_sums(int level, T* s, const T* x, int64_t index, int site = SITE_COMBINE) const {
        combine_sums(level, s, x, index, site + 32 * depth(level), site != SITE_WORKSPACE);
    }
    // s = R(s + x). `stream` and `index` determine the draw of a stochastic cast. `adds`: it is an addition, whose events are counted.
    void combine_sums(int level, T* s, const T* x, int64_t index, int stream, bool adds) const {
        const Cast& c = r.wrappers[level].cast;
        const Combination& m = combinations[level];
        if (events && adds) return events->combine_sums(s, x, base, c, 1 + level, (uint64_t)index, stream);
        if (m.kind == Combine::STOCHASTIC) return isa.combine_draws(carrier, s, x, base, c, (uint64_t)index, stream, m.odd);
        if (m.kind != Combine::SCALAR) return isa.combine(carrier, s, x, count(), c, m.kind, m.odd);
        for (int i = 0; i < base.rows; ++i)
            for (int j = 0; j < base.cols; ++j) {
                T& v = s[i * nr + j];
                const T y = x[i * nr + j];
                const uint32_t R = c.mode >= SR ? draw_step(base.seed, base.row0 + i, base.col0 + j, (uint64_t)index, stream, c.rbits) : 0;
                v = (T)sum_of((double)v, (double)y, c, R, m.odd);
            }
    }

    // Computes wrappers from `level` on over terms [begin, end).
    void run(int level, int64_t begin, int64_t end, T* out) const {
        if (level == r.wrapper_count || begin >= end) return base_case(begin, end, out);
        const Wrapper& w = r.wrappers[level];
        if (has_combined_runs() && level == r.wrapper_count - 1 && in_one_kernel(level, begin, end, out)) return;
        if (w.order == SHUFFLED) return run(level + 1, begin, end, out);
        if (w.order == SCHEDULED) return ScheduledSums<T, Compose>{*this}.run(level, out);
        if (w.order == SCALED) return groups_of(level, begin, end, w.n, out);
        if (w.order == CHUNKED) return runs_of(level, begin, end, w.n, out, false);
        if (w.order == SPLITK) return runs_of(level, begin, end, (end - begin + w.n - 1) / w.n, out, true);
        const bool innermost = w.order == PAIRWISE && level == r.wrapper_count - 1;
        if (innermost && events && terms.at_once(begin, end) && events->has_pairs(w.n))
            return events->pairs(terms.tile(begin, end, out), w.n, level);
        const auto deeper = [&](int64_t first, int64_t last, T* total) { run(level + 1, first, last, total); };
        if (w.order == PAIRWISE) return pairs_of(level, begin, end, w.n, 0, out, deeper);
        lanes(level, begin, end, w, out);
    }

    // Computes the innermost order and its runs by one kernel (Isa::runs). False: its speculation failed, or no kernel takes this number of
    // terms.
    bool in_one_kernel(int level, int64_t begin, int64_t end, T* out) const {
        const Wrapper& w = r.wrappers[level];
        const bool lanes = w.order == INTERLEAVED, few = terms.at_once(begin, end) && end - begin <= terms.most();
        if (!few && !lanes && choice.runs.shape == RunsPlan::SEQUENCE) return in_kernels(w, begin, end, out);
        if (!few && !lanes && w.n <= terms.most() / 2) return in_trees(level, begin, end, out);
        RunsPlan plan = choice.runs;
        return terms.at_once(begin, end) && runs_kernel(w, begin, end, out, plan);
    }
    // If speculation fails, these terms are computed again with clamps, and so is all that follows by this plan.
    bool runs_kernel(const Wrapper& w, int64_t begin, int64_t end, T* out, RunsPlan& plan) const {
        const int64_t k = end - begin;
        const bool lanes = w.order == INTERLEAVED;
        const Lengths lengths = {k, lanes ? (w.n < k ? w.n : k) : (k + w.n - 1) / w.n, w.n, lanes};
        if (lengths.count >= (int64_t)1 << 40) return false;
        ThreadOfCall::poll(k);
        const Tile t = terms.tile(begin, end, out);
        alignas(64) T before[MR * 64];
        const bool again = plan.clamps && plan.goes_on;
        if (again) memcpy(before, out, sizeof(T) * (size_t)count());
        if (isa.runs(carrier, t, lengths, plan)) return true;
        if (again) memcpy(out, before, sizeof(T) * (size_t)count());
        plan.kind = RunsRounding::CLAMPED;
        return plan.clamps && isa.runs(carrier, t, lengths, plan);
    }
    // Groups of runs, one group after another: their partial sums are combined in sequence.
    bool in_kernels(const Wrapper& w, int64_t begin, int64_t end, T* out) const {
        const int64_t size = terms.most() / w.n * w.n;
        RunsPlan plan = choice.runs;
        for (int64_t k = begin; size && k < end; k += size) {
            if (!runs_kernel(w, k, end - k > size ? k + size : end, out, plan)) return false;
            plan.goes_on = true;
        }
        return size != 0;
    }
    // Each kernel call computes a whole subtree of the tree of pairs. The partial sums of subtrees are then combined in pairs.
    bool in_trees(int level, int64_t begin, int64_t end, T* out) const {
        const Wrapper& w = r.wrappers[level];
        RunsPlan plan = choice.runs;
        int64_t size = w.n;
        while (2 * size <= terms.most()) size *= 2;
        bool won = true;
        pairs_of(level, begin, end, size, 0, out,
                 [&](int64_t first, int64_t last, T* total) { won = won && runs_kernel(w, first, last, total, plan); });
        return won;
    }

    // Runs of n terms, whose partial sums are added in sequence. `first`: each is rounded to the cast before.
    void runs_of(int level, int64_t begin, int64_t end, int64_t n, T* out, bool first) const {
        alignas(64) T total[MR * 64];
        memset(out, 0, sizeof(T) * (size_t)count());
        for (int64_t k = begin; k < end; k += n) {
            run(level + 1, k, k + n < end ? k + n : end, total);
            if (first) {
                alignas(64) T zero[MR * 64];
                for (int64_t i = 0; i < count(); ++i) zero[i] = (T)-0.0;  // x + (-0) is x, for x = -0 too
                combine_sums(level, total, zero, totals[level]++, SITE_WORKSPACE);
            }
            combine_sums(level, out, total, sums[level]++);
        }
    }

    // Runs of n terms. Each partial sum is multiplied by the scales of its blocks, and these products are added in sequence.
    void groups_of(int level, int64_t begin, int64_t end, int64_t n, T* out) const {
        alignas(64) T total[MR * 64];
        double xa[MR] = {}, xb[64] = {};
        const ScaleKernels& kernels = scale_kernels(isa);
        clear(out);
        if (in_groups_kernel(begin, end, n, out, kernels)) return;
        for (int64_t k = begin; k < end; k += n) {
            run(level + 1, k, k + n < end ? k + n : end, total);
            for (int i = 0; i < base.rows; ++i) xa[i] = scales.left(i, k);
            for (int j = 0; j < base.cols; ++j) xb[j] = scales.right(j, k);
            const int64_t index = sums[level]++;
            if (scale_step != SCALE_SCALAR) {
                kernels.add(carrier, out, total, nr, xa, xb, r.wrappers[level].cast, scale_step);
                continue;
            }
            each(
                [&](int i, int j) {
                    return scaled_sum((double)out[i * nr + j], (double)total[i * nr + j], xa[i], xb[j], r.wrappers[level].cast,
                                      draw(level, i, j, index));
                },
                out);
        }
    }

    // groups_of() in one kernel, where the register and the running sum are the carrier's own float. False: it does not apply.
    bool in_groups_kernel(int64_t begin, int64_t end, int64_t n, T* out, const ScaleKernels& kernels) const {
        const bool plain = r.wrapper_count == 1 && r.method == REGISTER && choice.kind == Rounding::NATIVE && choice.step == FMA_NEAR;
        if (!plain || carrier != 0 || scale_step != SCALE_NATIVE || begin != 0 || end != base.k) return false;
        int64_t block = scales.all->a_size, rest = scales.all->b_size;  // `block` becomes their greatest common divisor
        while (rest) {
            const int64_t left = block % rest;
            block = rest;
            rest = left;
        }
        const int64_t most = terms.most() / block, size = most ? most * block : block;
        if (terms.window && !most) return false;
        std::vector<float> xa, xb;
        for (int64_t k = 0; k < end; k += size) {
            const int64_t last = end - k < size ? end : k + size, blocks = (last - k + block - 1) / block;
            xa.assign((size_t)(blocks * MR), 0.0f);
            xb.assign((size_t)(blocks * nr), 0.0f);
            for (int64_t g = 0; g < blocks; ++g) {
                for (int i = 0; i < base.rows; ++i) xa[(size_t)(g * MR + i)] = (float)scales.left(i, k + g * block);
                for (int j = 0; j < base.cols; ++j) xb[(size_t)(g * nr + j)] = (float)scales.right(j, k + g * block);
            }
            ThreadOfCall::poll(last - k);
            kernels.groups(terms.tile(k, last, out), n, block, xa.data(), xb.data());
        }
        return true;
    }

    // s = R(T * s), where T is the product of the tensor scales.
    void times_tensor_scales(T* out) const {
        const Cast& c = r.wrapper_count ? r.wrappers[0].cast : r.add;
        if (times_wide(c, carrier)) return scale_kernels(isa).times(carrier, out, count(), scales.all->tensor, c);
        each(
            [&](int i, int j) {
                return product_step(scales.all->tensor, (double)out[i * nr + j], c, r.wrapper_count ? draw(0, i, j, sums[0]) : 0);
            },
            out);
    }

    uint32_t draw(int level, int i, int j, int64_t index) const {
        const Cast& c = r.wrappers[level].cast;
        return c.mode >= SR ? draw_step(base.seed, base.row0 + i, base.col0 + j, (uint64_t)index, SITE_COMBINE + 32 * depth(level), c.rbits)
                            : 0;
    }

    template <class F> void each(const F& value, T* out) const {
        for (int i = 0; i < base.rows; ++i)
            for (int j = 0; j < base.cols; ++j) out[i * nr + j] = (T)value(i, j);
    }

    static int64_t base_cases_of(int64_t begin, int64_t end, int64_t n, int64_t lanes) { return lanes ? lanes : (end - begin + n - 1) / n; }

    // Combines adjacent pairs of runs, then of their partial sums, and so on. An odd last one passes to the next level unchanged.
    // `lanes_total`: number of lanes, which are the runs as in lanes(); 0: runs have n terms.
    // total(first, last, tile) computes the partial sum of a run.
    template <class F> void pairs_of(int level, int64_t begin, int64_t end, int64_t n, int64_t lanes_total, T* out, const F& total) const {
        struct Entry {
            int height;
            int64_t first;  // its first run
            T* tile;
        };
        // Draws count the pairs level by level, although the tree is traversed depth first here.
        const int64_t base = sums[level];
        auto order_of = [&](const Entry& left) {
            int64_t before = 0, wide = base_cases_of(begin, end, n, lanes_total);
            for (int h = 0; h < left.height; ++h, wide -= wide / 2) before += wide / 2;
            return base + before + (left.first >> left.height) / 2;
        };
        const int64_t base_cases = base_cases_of(begin, end, n, lanes_total);
        int heights = 2;
        while ((1ll << heights) < base_cases + 1) ++heights;
        const Buffer memory(sizeof(T) * (size_t)(count() * (heights + 2)));
        T* const store = (T*)memory.p;
        Entry stack[66];
        int used = 0;
        int64_t at = begin;
        auto join = [&] {
            combine_sums(level, stack[used - 2].tile, stack[used - 1].tile, order_of(stack[used - 2]));
            --used;
            ++stack[used - 1].height;
        };
        for (int64_t i = 0; i < base_cases; ++i) {
            const int64_t size = lanes_total ? lane_size(begin, end, lanes_total, i) : (n < end - at ? n : end - at);
            T* tile = store + used * count();
            total(at, at + size, tile);
            at += size;
            stack[used++] = Entry{0, i, tile};
            while (used > 1 && stack[used - 2].height == stack[used - 1].height) join();
        }
        while (used > 1) join();
        sums[level] = base + base_cases - 1;
        memcpy(out, stack[0].tile, sizeof(T) * (size_t)count());
    }

    static int64_t lane_size(int64_t begin, int64_t end, int64_t lanes, int64_t lane) {
        const int64_t k = end - begin;
        return k / lanes + (lane < k % lanes ? 1 : 0);
    }

    // Interleaved sums. Operands were packed lane after lane (permute_terms in k_permutation.h), so that a lane is a run.
    void lanes(int level, int64_t begin, int64_t end, const Wrapper& w, T* out) const {
        const int64_t used = w.n < end - begin ? w.n : end - begin;
        if (w.pairs)
            return pairs_of(level, begin, end, 0, used, out,
                            [&](int64_t first, int64_t last, T* total) { run(level + 1, first, last, total); });
        alignas(64) T total[MR * 64];
        memset(out, 0, sizeof(T) * (size_t)count());
        int64_t at = begin;
        for (int64_t lane = 0; lane < used; ++lane) {
            const int64_t size = lane_size(begin, end, used, lane);
            run(level + 1, at, at + size, total);
            combine_sums(level, out, total, sums[level]++);
            at += size;
        }
    }
};

}  // namespace gemmsim
