// This file computes the segments and combinations of a product whose additions are counted. It uses vectors where
// double lanes hold a step, and computes one element at a time elsewhere.
#pragma once
#include <string.h>
#include "compiled_isas.h"
#include "product/event_args.h"
#include "product/scalar.h"

namespace gemmsim {

// Rounds the exact sum `x` = s + q and counts its events. Sums with a NaN or infinite addend are not counted.
struct CountedSum {
    const Cast& c;
    const EventTile& into;
    int64_t element;

    // `some`: q is not zero.
    double count(const Exact& x, double s, bool some, uint32_t R) const {
        const double v = round_exact(x, c, R);
        const uint32_t seen = events_of(x, s, some, v, c, into.least, R);
        for (int e = 0; e < EVENTS; ++e) *into.of(e, element) += seen >> 8 * e & 1;
        return v;
    }
    double sum(double s, double q, uint32_t R) const {
        if (is_nan(s) || is_nan(q) || is_inf(s) || is_inf(q)) return sum_step(q, s, c, R);
        return count(exact_sum(exact_value(q), exact_value(s)), s, q != 0, R);
    }
    double fused(double a, double b, double s, uint32_t R) const {
        if (is_nan(a) || is_nan(b) || is_nan(s) || is_inf(a) || is_inf(b) || is_inf(s)) return fused_step(a, b, s, c, R);
        return count(exact_sum(exact_product(a, b), exact_value(s)), s, a != 0 && b != 0, R);
    }
};

// A compensated sum that counts its additions to S, and the addition of S and C at the end.
struct CountedDot : CompensatedDot {
    CountedSum counted;
    void step(double a, double b, double& s, double& c) const {
        const double before = s;
        double y;
        if (r.method == KAHAN) {
            y = r.fused ? scalar_step(a, b, -c, r, 0, bits(SITE_STEP))
                        : add(product(a, b, r.mul, step_bits(r.mul, t, i, j, at, SITE_PRODUCT)), -c, SITE_STEP);
        } else {
            const double q = r.fused ? 0 : product(a, b, r.mul, step_bits(r.mul, t, i, j, at, SITE_PRODUCT));
            y = r.fused ? product(a, b, r.add, bits(SITE_STEP)) : round_value(q, r.add, bits(SITE_STEP));
        }
        counted.sum(before, y, bits(SITE_STEP + 1));
        CompensatedDot::step(a, b, s, c);
    }
};

inline const EventKernels& event_kernels(const Isa& isa) {
    (void)isa;  // where one version alone is compiled
    return GEMMSIM_VERSION(event_kernels, isa.name)();
}

template <class T> struct EventCounter {
    const Isa& isa;
    const Request& r;
    const EventArgs& args;
    int nr;
    mutable int64_t counts[EVENTS * MR * 64] = {};
    mutable BlockPanels panels = {};

    const EventKernels& kernels = event_kernels(isa);
    int bits = 48;             // upper bound of the bits of a product
    bool narrow_sums = false;  // float lanes round the sum of values of any two of the casts once (lemma A)

    // Narrow products: no sum leaves the format, and none falls between its smallest numbers.
    bool on_grid = false;
    bool lost = true;          // then: a product may be 2^23 times the smallest register, or more

    void check(const Stats& a, const Stats& b, bool planned) {
        bits = operand_bits(r.a, r.dtype_a) + operand_bits(r.b, r.dtype_b);
        if (planned && a.width + b.width < bits) bits = a.width + b.width;
        if (planned) prove(block_facts(r, a, b, EMPTY_STATS));
        narrow_sums = sizeof(T) == 4 && plain(r.add) && r.add.mode == RNE && 2 * r.add.p <= 23;
        for (int w = 0; w < r.wrapper_count; ++w) {
            const Cast& c = r.wrappers[w].cast;
            if (r.wrappers[w].order == SHUFFLED) continue;
            narrow_sums = narrow_sums && plain(c) && c.mode == RNE && c.p == r.add.p;
        }
    }
    void prove(const Facts& f) {
        const Cast& c = r.add;
        const bool inside = f.finite && f.bound < fmin(fmin(c.hi, -c.lo), ldexp(1.0, 100)) && f.lsb >= -100 && no_underflow(c, f.lsb);
        on_grid = inside && sizeof(T) == 4 && lemma_a(c, f.width, 24) && f.width + c.p <= 23;
        lost = !(f.product < ldexp(1.0, (f.lsb < 100 ? f.lsb : 100) + 23));
    }
    // Whether the cast has a signed float format and a mode that the shorter kernels support.
    static bool plain(const Cast& c) {
        return lanes(c) && c.emin < c.emax && -c.lo > 0 && c.hi > 0 && ((c.mode >= RNE && c.mode <= RD) || c.mode == SR);
    }

    // `level` is 0 for the register and 1 for the first wrapper.
    EventTile tile(int level, CountBy by = CountBy::STEPS, bool known = false) const {
        return EventTile{counts, MR * nr, args.least[level], by, known, &panels};
    }
    // The counts and the kernel of the register's segment. Sums with products of many bits seldom fit the register and
    // are seldom ties.
    EventTile run_tile() const {
        const Cast& c = r.add;
        const bool floats = sizeof(T) == 4 && c.p <= 13 && c.mode != SR, narrow = floats && bits > 32;
        const bool known = c.mode != RNA && bits + c.p <= 52, known_in_floats = floats && c.mode != RNA && bits + c.p <= 23;
        if (!plain(c) || r.init == C_FIRST || !r.fused || c.p > 40 || args.least[0] != ldexp(1.0, c.emin)) return tile(0);
        const bool tiny_sums_are_exact = !(c.flags & NO_SUBNORMALS);
        if (r.method) return tile(0, narrow_sums && tiny_sums_are_exact ? CountBy::FLOATS : CountBy::STEPS);
        if (sizeof(T) == 4 && is_native(c, 0)) return tile(0, CountBy::NATIVE, bits <= 24);
        if (floats && on_grid) return tile(0, CountBy::MULTIPLES, !lost);
        if (floats && c.mode == RNE && bits <= 24) return tile(0, CountBy::EXACT_PRODUCTS);
        return narrow ? tile(0, CountBy::FLOATS) : known_in_floats ? tile(0, CountBy::FLOATS, true) : tile(0, CountBy::DOUBLES, known);
    }

    // Whether double lanes can round the exact sum of any two doubles by this cast.
    static bool lanes(const Cast& c) { return fits(c, 1, true) && !(c.flags & ANY_GRID); }

    bool run_in_lanes() const {
        const bool random = r.add.mode == SR || (!r.fused && r.mul.mode == SR);
        return operand_fits_float(r.a, r.dtype_a) && operand_fits_float(r.b, r.dtype_b) && lanes(r.add) && (r.fused || lanes(r.mul)) &&
               !(r.method && random);
    }

    // Adds all terms to what `out` holds.
    void run(const Parts<T>& parts) const {
        if (run_in_lanes()) return run_lanes(parts);
        for (int i = 0; i < parts.base().rows; ++i)
            for (int j = 0; j < parts.base().cols; ++j) {
                T& c = parts.out[i * nr + j];
                const CountedSum counted = {r.add, tile(0), i * nr + j};
                c = (T)(r.method ? compensated(parts, i, j, counted) : register_of(parts, i, j, (double)c, counted));
            }
    }
    void run_lanes(const Parts<T>& parts) const {
        alignas(64) T rest[MR * 64];
        const bool at_once = parts.terms.window == nullptr;
        parts.each([&](Tile t) {
            if (!at_once) panels = {};  // the panels now hold other terms at the same addresses
            t.rest = rest;
            kernels.run(sizeof(T) == 4 ? 0 : 1, t, nr, r.method, r.fused, run_tile());
        });
    }

    // Whether pairs() can compute segments of n terms whose sums are combined in pairs. In longer segments few sums are
    // combined, and pairs() does not check whether a single term is a number of the format.
    bool has_pairs(int64_t n) const {
        const bool plain_register = !r.method && r.fused && r.init != C_FIRST && args.least[0] == ldexp(1.0, r.add.emin);
        const bool short_runs = n == 1 || (n <= LONGEST_COUNTED_PAIRS && run_tile().by == CountBy::FLOATS && !run_tile().known);
        return kernels.pairs && plain_register && narrow_sums && run_in_lanes() && short_runs;
    }
    // Sums all terms of t in segments of n from +0 and combines these sums by the wrapper `level`, into t's c.
    void pairs(const Tile& t, int64_t n, int level) const { kernels.pairs(t, nr, n, r.wrappers[level].cast, tile(0), tile(1 + level)); }

    double register_of(const Parts<T>& parts, int i, int j, double s, const CountedSum& counted) const {
        parts.each_term([&](const Tile& t, int64_t k) {
            const double a = left_of<T>(t, k, i), b = right_of<T>(t, k, j, nr);
            const int64_t at = t.index(k);
            const uint32_t ra = step_bits(r.add, t, i, j, at, SITE_ADD);
            if (r.fused) s = counted.fused(a, b, s, ra);
            else s = counted.sum(s, product_step(a, b, r.mul, step_bits(r.mul, t, i, j, at, SITE_PRODUCT)), ra);
        });
        return s;
    }

    double compensated(const Parts<T>& parts, int i, int j, const CountedSum& counted) const {
        CountedDot dot = {{r, parts.base(), i, j}, counted};
        double s = 0, c = 0;
        parts.each_term([&](const Tile& t, int64_t k) {
            dot.at = t.index(k);
            dot.step(left_of<T>(t, k, i), right_of<T>(t, k, j, nr), s, c);
        });
        return r.method == KAHAN || parts.count() == 0 ? s : counted.sum(s, c, dot.bits(SITE_FINAL));
    }

    // s = R(s + x), element by element. A stochastic cast draws in stream `site` at step `index`.
    void combine_sums(T* s, const T* x, const Tile& t, const Cast& c, int level, uint64_t index, int site) const {
        const CountBy by = level && narrow_sums ? CountBy::FLOATS : CountBy::STEPS;  // an addend C may have any number of bits
        if (lanes(c)) return kernels.sum(sizeof(T) == 4 ? 0 : 1, s, x, t, nr, c, index, site, tile(level, by));
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < t.cols; ++j) {
                T& v = s[i * nr + j];
                const uint32_t R = c.mode >= SR ? draw_step(t.seed, t.row0 + i, t.col0 + j, index, site, c.rbits) : 0;
                v = (T)CountedSum{c, tile(level), i * nr + j}.sum((double)v, (double)x[i * nr + j], R);
            }
    }

    // Adds the tile's counts to those of the product, which has `elements` elements. The tile's first element is number
    // `first`, and its rows are n apart.
    void add_to(int64_t* all, int64_t elements, int64_t first, int64_t n, int rows, int cols) const {
        for (int e = 0; e < EVENTS; ++e)
            for (int i = 0; i < rows; ++i)
                for (int j = 0; j < cols; ++j) all[e * elements + first + i * n + j] += counts[(e * MR + i) * (int64_t)nr + j];
        memset(counts, 0, sizeof(int64_t) * (size_t)(EVENTS * MR * nr));
    }
};

}  // namespace gemmsim
