// Which kernel computes a block of outputs, decided from the formats and from facts about the data.
// Everything here is a proof that a cheaper kernel gives the same bits; docs/design/cpu.md states the lemmas.
#pragma once
#include <stdlib.h>
#include <string.h>
#include "product/bounds.h"

namespace gemmsim {

// What the planner could prove; a bit mask that users see in words.
enum Proof : int32_t { NO_OVERFLOW = 1, NO_UNDERFLOW = 2, EXACT_STEPS = 4, FINITE = 8 };

// How exact sums are cut into slices: so many of each operand, of so many bits below 2^top; none: they are not. All products are
// multiples of 2^unit.
struct Slices {
    static constexpr int MOST = 4;
    static constexpr int64_t FLUSH = 1024;  // terms that double lanes sum
    int a = 0, b = 0, width = 0, top_a = 0, top_b = 0, unit = 0;
};

// Registers of doubles for sums by exponent: of so many fields of an exponent, from the first on; none: they are not.
struct DoubleBins {
    int first = 0, count = 0;
};

struct Choice {
    int carrier, step, kind;
    int32_t proofs;
    IntegerLanes integers = {};
    Speculation speculation = {};
    RunsPlan runs = {};
    bool exact_products = false;  // of a plain register: each is a number of the carrier
    bool nearest_sums = false;    // FAST and FAST_CLAMP by modes: sums are the carrier's nearest ones, whatever the mode is
    int scaled_by = 0;                 // of a plain register: what Tile's may be
    Rescaling rescaling = {};               // of one of floats that may have sums below 2^emin
    int fallback = GENERAL;        // of compensated sums: the kernel for a lost wager
    Slices slices = {};
    DoubleBins bins = {};
    int kept = 0;  // of a matrix unit's step: HardwareModel's, or how many bits make sure that nothing is cut
};

struct CarrierInfo {
    int bits, emin, emax;  // significand bits, exponents of normals
};
inline CarrierInfo carrier_info(int carrier) { return carrier == 0 ? CarrierInfo{24, -126, 127} : CarrierInfo{53, -1022, 1023}; }

inline int dtype_bits(int dtype) { return dtype == F32 ? 24 : dtype == F64 ? 53 : dtype == F16 ? 11 : 8; }
inline int operand_bits(const Cast& c, int dtype) {
    const int d = dtype_bits(dtype);
    return (c.flags & PRESENT) && c.p < d ? c.p : d;
}

// The format is the carrier itself, rounded to nearest: the machine's own operation is the definition.
inline bool is_native(const Cast& c, int carrier) {
    const CarrierInfo i = carrier_info(carrier);
    return c.mode == RNE && c.p == i.bits && c.emin == i.emin && c.emax == i.emax && !(c.flags & NO_SUBNORMALS) && (c.flags & NEG_ZERO) &&
           isinf(c.over_pos) && isinf(c.over_neg) && isinf(c.inf_pos) && isinf(c.inf_neg);
}

inline bool native(const Request& r, int carrier) {
    if (r.method > FAST_TWO_SUM) return false;
    return r.arithmetic == FP32 ? carrier == 0 && is_native(r.add, 0) && (r.fused || is_native(r.mul, 0))
                                : is_native(r.add, carrier) && (r.fused || is_native(r.mul, carrier));
}

inline bool vector_mode(const Cast& c) { return c.mode <= SR && !(c.flags & (CODE_PARITY | NO_ZERO)); }

// A value of this format, rounded once from a round-to-odd carrier value, is correct: two spare bits below the
// last place (and below the last random bit).
inline bool fits(const Cast& c, int carrier, bool spare) {
    const CarrierInfo i = carrier_info(carrier);
    if (!vector_mode(c) || c.emin < i.emin || c.emax > i.emax || c.emin + i.bits - c.p >= i.emax) return false;
    const int extra = c.mode == SR ? c.rbits + 1 : 2;
    return c.mode == SR ? c.p + (spare ? extra : 0) <= i.bits && c.rbits <= i.bits - 1 : c.p + (spare ? extra : 0) <= i.bits;
}

// Whether float lanes hold what a cast of floats makes of infinities and of what lies beyond its range.
inline bool ends_are_floats(const Cast& c) {
    for (const double end : {c.lo, c.hi, c.over_neg, c.over_pos, c.inf_neg, c.inf_pos})
        if (end == end && (double)(float)end != end) return false;
    return true;
}

inline bool operand_fits_float(const Cast& c, int dtype) {
    if (dtype != F64) return !(c.flags & PRESENT) || (c.emax <= 127 && ends_are_floats(c));
    return (c.flags & PRESENT) && c.p <= 24 && c.emax <= 127 && c.emin - c.p + 1 >= -149;
}

// A stochastic register of float lanes whose random bits these hold only in part (tiles/stochastic/stochastic.h): a plain one alone, with so
// many bits below its last place that it seldom depends on others.
inline bool has_wide_random_bits(const Request& r) {
    if (r.add.p > 15) return false;
    for (int w = 0; w < r.wrapper_count; ++w)
        if (r.wrappers[w].order != SHUFFLED) return false;
    return r.method == REGISTER && r.fused && r.arithmetic == EXACT && r.add.mode == SR && r.init != C_LAST && !fits(r.add, 0, true) &&
           fits(r.add, 0, false) && fits(r.add, 1, true);
}

// Operands, the values of the register and those of all totals, which tiles hold.
inline bool integers_fit_float(const Request& r) {
    for (int w = 0; w < r.wrapper_count; ++w) {
        const Cast& c = r.wrappers[w].cast;
        if (r.wrappers[w].order != SHUFFLED && (c.p > 24 || c.emin > 126 || c.emax > 127 || c.emin - c.p + 1 < -149)) return false;
    }
    const int frac = r.method == FIXED ? r.integer.frac : 0;
    return r.integer.bits <= 24 && frac <= 149 && r.integer.bits - frac <= 127 && operand_fits_float(r.a, r.dtype_a) &&
           operand_fits_float(r.b, r.dtype_b);
}

// 0 float lanes, 1 double lanes, 2 scalar arithmetic on doubles; `least` 1 excludes float lanes. `codes`: of a table's operands.
// Independent of the data.
inline int choose_carrier(const Request& r, bool directed, int least = 0, bool codes = false) {
    const bool two = !r.fused;
    const bool plain = r.arithmetic == FP32;
    auto wrapped = [&](int carrier) {  // every combination can be rounded in this carrier too
        for (int w = 0; w < r.wrapper_count; ++w)
            if (!fits(r.wrappers[w].cast, carrier, !plain) && !is_native(r.wrappers[w].cast, carrier) && r.wrappers[w].order != SHUFFLED)
                return false;
        return true;
    };
    if (r.method == HARDWARE) return wrapped(0) ? 0 : 2;
    if (r.method == INTEGER || r.method == FIXED) return integers_fit_float(r) ? 0 : 2;
    if (r.method >= LONG) return 2;
    if (plain) return fits(r.add, 0, false) && (!two || fits(r.mul, 0, false)) && wrapped(0) ? 0 : 2;
    const int width = operand_bits(r.a, r.dtype_a) + operand_bits(r.b, r.dtype_b);
    const bool f =
        least == 0 && operand_fits_float(r.a, r.dtype_a) && operand_fits_float(r.b, r.dtype_b) && (r.init == FROM_ZERO || r.dtype_c != F64);
    const bool native0 = is_native(r.add, 0) && (!two || is_native(r.mul, 0));
    if (f && native0 && wrapped(0)) return 0;
    const bool roomy = r.method == REGISTER || 2 * r.add.p <= 23 || r.add.mode != RNE;  // lemma A for sums of two registers
    if (f && roomy && (directed || width <= 24) && fits(r.add, 0, true) && (!two || fits(r.mul, 0, true)) && wrapped(0)) return 0;
    if (f && directed && !codes && has_wide_random_bits(r)) return 0;
    if (is_native(r.add, 1) && (!two || is_native(r.mul, 1)) && wrapped(1)) return 1;
    if ((directed || width <= 53) && fits(r.add, 1, true) && (!two || fits(r.mul, 1, true)) && wrapped(1)) return 1;
    return 2;
}

// Modes of which compensated sums have kernels of their own (tiles/compensated/compensated_modes.h).
inline bool compensated_mode(const Cast& c) { return c.mode > RNE && c.mode <= SR; }

// Compensated sums of any operands in float lanes by modes (tiles/compensated/compensated.h).
inline bool speculative_terms(const Request& r) {
    if (r.method < KAHAN || r.method > FAST_TWO_SUM || r.arithmetic != EXACT) return false;
    return compensated_mode(r.add) || (r.add.mode == RNE && 2 * r.add.p <= 23 && (r.fused || 2 * r.mul.p <= 23));
}

// Runs of so many terms pay for a kernel of tiles of their own where that one has fewer instructions a step; of double lanes by modes.
constexpr int64_t SPECULATIVE_RUNS = 32, WIDE_RUNS = 24;

inline bool same_cast(const Cast& x, const Cast& y) {
    auto same = [](double p, double q) { return memcmp(&p, &q, sizeof p) == 0; };  // what an overflow becomes may be NaN
    return x.p == y.p && x.emin == y.emin && x.mode == y.mode && x.flags == y.flags && x.emax == y.emax && same(x.lo, y.lo) &&
           same(x.hi, y.hi) && same(x.over_pos, y.over_pos) && same(x.over_neg, y.over_neg) && same(x.inf_pos, y.inf_pos) &&
           same(x.inf_neg, y.inf_neg);
}

// The innermost order if its totals meet by the register's cast, in sequence or in pairs; else null.
inline const Wrapper* order_of_same(const Request& r) {
    const Wrapper* const w = r.wrapper_count ? &r.wrappers[r.wrapper_count - 1] : nullptr;
    return w && (w->order == CHUNKED || w->order == PAIRWISE || w->order == INTERLEAVED) && same_cast(w->cast, r.add) ? w : nullptr;
}
inline int64_t longest_run(const Request& r, const Wrapper& w) {
    return w.order == INTERLEAVED ? (r.k + w.n - 1) / w.n : w.n < r.k ? w.n : r.k;
}

// Sums of rounded products (tiles/short_runs/short_runs.h), of any operands in float lanes.
inline bool single_terms(const Request& r) {
    const Wrapper* const w = order_of_same(r);
    return w && r.method == REGISTER && r.fused && r.arithmetic == EXACT && r.add.mode == RNE && 2 * r.add.p <= 23 &&
           longest_run(r, *w) == 1;
}

// Terms of the shortest run, but for what is left over at an end; all, or more, where no order divides them.
inline int64_t shortest_run(const Request& r) {
    int64_t shortest = INT64_MAX;
    for (int w = 0; w < r.wrapper_count; ++w) {
        const Wrapper& x = r.wrappers[w];
        if (x.order == SHUFFLED) continue;
        const int64_t n = x.order == CHUNKED || x.order == PAIRWISE ? x.n : r.k / x.n;
        if (n < shortest) shortest = n;
    }
    return shortest;
}

// Whether a kernel of tiles computes each run: those of one term that are rounded to nearest go in registers in short_runs.h, which has exact
// products then.
inline bool long_runs(const Request& r) { return r.method == REGISTER && (shortest_run(r) >= 2 || r.add.mode != RNE); }

// A cast that irregular_format.cpp rounds a sum to odd with: spare bits below its last place or last random bit, and no sum
// near the ends of double's range.
inline bool grid_lanes_fit(const Cast& c) {
    if (c.mode < RNE || c.mode > SR || (c.flags & NO_ZERO)) return false;
    if (c.p < 2 && !(c.flags & SUPERNORMAL)) return false;  // parity of codes; no bits at all
    if (c.mode == SR && (c.flags & FIRST_IS_ZERO)) return false;
    return c.p + (c.mode == SR ? c.rbits + 1 : 2) <= 53 && c.emin - c.p + 1 > -900 && c.emax < 900;
}

// Whether a register that no carrier's own kernels round goes in double lanes: products are exact there.
inline bool grid_lanes(const Request& r) {
    return r.method == REGISTER && r.arithmetic == EXACT && operand_fits_float(r.a, r.dtype_a) && operand_fits_float(r.b, r.dtype_b) &&
           (r.init == FROM_ZERO || r.dtype_c != F64) && grid_lanes_fit(r.add) && (r.fused || grid_lanes_fit(r.mul));
}

inline bool wrappers_fit_grids(const Request& r) {
    for (int w = 0; w < r.wrapper_count; ++w)
        if (r.wrappers[w].order != SHUFFLED && !grid_lanes_fit(r.wrappers[w].cast)) return false;
    return true;
}

// ---- the kernel ------------------------------------------------------------------------------------------

inline int draws(const Cast& c) { return c.mode != SR ? 0 : c.rbits <= 16 ? 8 : 4; }

// Rank of the kernel this cast needs, given what is proved.
inline int cast_kind(const Cast& c, int carrier, bool finite, bool overflow_free, bool underflow_free, double bound, bool odd_steps,
                     double step_bound, bool directed, bool has_wide_random_bits = false) {
    const CarrierInfo i = carrier_info(carrier);
    const int scaled_by = i.bits - c.p + 1;  // the magic number is this many binades above the value
    const bool flush = c.flags & NO_SUBNORMALS, low_fits = !flush || c.emin + i.bits <= i.emax;  // nor is that of 2^emin too large
    if (c.mode != RNE) {
        const bool spare = has_wide_random_bits || c.p + (c.mode == SR ? c.rbits : 1) <= i.bits - 1;
        const bool step_safe = odd_steps || step_bound < ldexp(1.0, i.emax);
        if (directed && finite && spare && step_safe && low_fits) {
            if (overflow_free && bound < ldexp(1.0, i.emax - scaled_by)) return FAST;
            if (c.emax + 1 + scaled_by <= i.emax) return FAST_CLAMP;
        }
        return c.mode == SR ? RANDOM : GENERAL;
    }
    if (!finite || c.p > i.bits - 2) return GENERAL;
    if (overflow_free && bound < ldexp(1.0, i.emax - scaled_by)) {
        if (underflow_free) return PLAIN;
        if (!flush) return SUB;
        if (low_fits) return FTZ;
    }
    if (flush && !low_fits && !underflow_free) return GENERAL;
    if (c.emax + 1 + scaled_by > i.emax) return GENERAL;
    if (!odd_steps && !(step_bound < ldexp(1.0, i.emax))) return GENERAL;  // the carrier itself might overflow
    const bool clamps = c.over_pos == c.hi && c.over_neg == c.lo;
    const bool inf = c.over_pos == c.inf_pos && c.over_neg == c.inf_neg;
    const bool nan = c.over_pos != c.over_pos && c.over_neg != c.over_neg;
    if (flush && !underflow_free) return clamps || inf || nan ? FTZ : GENERAL;
    return clamps ? SAT : inf || nan ? SPECIAL : GENERAL;
}

// By which power of two values are multiplied so that the least normal one of the format is 2, the first float whose exponent has
// the highest bit set; 0 where that leaves float's range. No value is beyond the format's end.
inline int scaling_of(const Request& r, const Facts& f, double most_a) {
    const int by = 1 - r.add.emin, p = r.fused || r.add.p < r.mul.p ? r.add.p : r.mul.p;
    const int emax = r.fused || r.add.emax > r.mul.emax ? r.add.emax : r.mul.emax;
    const double most = fmax(fmax(most_a, f.product), f.bound);
    if (by <= 0 || (!r.fused && r.mul.emin != r.add.emin) || r.add.p > SHORT_BITS || (!r.fused && r.mul.p > SHORT_BITS)) return 0;
    if (r.add.emin - r.add.p < carrier_info(0).emin) return 0;  // what floats hold in part would be rounded otherwise
    return emax + by + 26 - p <= 127 && most < ldexp(1.0, 127 - by) ? by : 0;
}

// Whether a register to nearest even may have its sums rounded by their bits.
inline bool truncates_nearest(const Request& r) {
    return r.method == REGISTER && r.init == FROM_ZERO && r.fused && r.arithmetic == EXACT && r.add.mode == RNE && r.add.p >= 2 &&
           r.add.p <= 13 && (r.add.flags & NEG_ZERO) && !(r.add.flags & NO_SUBNORMALS);
}
// Runs of so many terms or more may be cut tile by tile.
constexpr int64_t TRUNCATED_RUNS = 32;
// Lowest bits of products of 24-bit numbers are some 46 places below these: below half the quantum of formats with few exponent bits.
inline bool lowest_bits_help(const Request& r) { return truncates_nearest(r) && r.add.emin >= -32 && shortest_run(r) >= TRUNCATED_RUNS; }
// Of terms that may lead to midpoints: at least so much is what Isa::lowest_bits says of both factors, added (tiles/nearest/midpoint_filter.h).
inline int midpoints_from(const Cast& add) { return add.emin - add.p + 2 * 127; }

// Whether sums of a register that starts from +0 are cut by their bits (tiles/nearest/rescaled.h).
inline bool truncates(const Isa& isa, const Request& r, const Choice& c, const Rescaling& rescaling) {
    if (!isa.multi_tile || r.method != REGISTER || r.init != FROM_ZERO || c.carrier != 0 || !r.fused || !rescaling.fits) return false;
    const Cast& add = r.add;
    // nearest sums of exact products are on midpoints often; of arithmetic="fp32" they are rounded to nearest, whatever the register's mode
    const bool nearest = isa.lowest_bits && truncates_nearest(r) && c.step == FMA_ODD && (c.kind == PLAIN || c.kind == SUB) && !c.exact_products;
    const bool truncation = c.kind == FAST && r.arithmetic == EXACT && add.mode != RO;
    return (nearest || truncation) && add.p >= 2 && (add.flags & NEG_ZERO) && !(add.flags & NO_SUBNORMALS);
}

// How tiles of a plain register that starts from +0 go together; `choice` has its sink.
inline MultiTile::Way multi_tile_way(const Isa& isa, const Request& r, const Choice& c, const Rescaling& rescaling) {
    if (r.wrapper_count) return MultiTile::NO;
    if (truncates(isa, r, c, rescaling)) return MultiTile::TRUNCATE;
    const bool sums = isa.multi_tile && r.method == REGISTER && r.init == FROM_ZERO && c.carrier == 0 && r.fused && rescaling.fits &&
                      c.step == FMA_NEAR && c.kind <= SUB;
    return sums && isa.multi_tile_sums ? MultiTile::SUMS : MultiTile::NO;
}

// Whether all of an operand are numbers of binary16: at most 11 bits, down to 2^-24, up to 65504.
inline bool of_binary16(const Stats& x) { return !x.non_finite && x.width <= 11 && (x.lsb >= -24 || x.max_abs == 0) && x.max_abs <= 65504; }

// A plain register of binary16 from +0 whose operands are such, in a mode of the processor's steps. Exact zero sums are +0 (not so down).
inline bool uses_fp16(const Isa& isa, const Request& r, const Choice& c, const Stats& a, const Stats& b) {
    const Cast& x = r.add;
    if (!isa.fp16 || r.method != REGISTER || r.wrapper_count || r.init != FROM_ZERO || !r.fused || c.carrier != 0) return false;
    if (x.p != 11 || x.emin != -14 || x.emax != 15 || !(x.flags & NEG_ZERO) || (x.flags & NO_SUBNORMALS)) return false;
    if (r.arithmetic != EXACT || !of_binary16(a) || !of_binary16(b)) return false;
    const bool infinities = x.over_pos == x.inf_pos && x.over_neg == x.inf_neg && isinf(x.inf_pos) && isinf(x.inf_neg);
    if (x.mode == RNE) return c.kind == PLAIN || c.kind == SUB || (c.kind == SPECIAL && infinities);
    return c.kind == FAST && (x.mode == RTZ || x.mode == RU);
}

// How many vectors of a tile's step have a sum below 2^emin, in operands of both signs whose sums grow like the root of a run's terms: a
// guess from the mean magnitudes of the largest row of A and panel of B.
inline double small_vectors(const Request& r, const Stats& a, const Stats& b, int nr) {
    const double k = (double)r.k, run = fmin(k, (double)shortest_run(r)), product = a.row_sum / k * (b.row_sum / (k * nr)),
                 near_zero = 1.3 * ldexp(1.0, r.add.emin) / (product * sqrt(run));
    return product > 0 ? (double)(MR * nr) * near_zero : 0;
}
constexpr double RARE_SMALL = 0.1;

// By what panels are sunk, half of it each where their smallest bits allow that: elements stay normal floats.
inline Rescaling rescaling_of(const Cast& add, const Stats& a, const Stats& b) {
    const int least = carrier_info(0).emin, by = least - add.emin;
    const int most_a = a.lsb > 30000 ? least : least - a.lsb, most_b = b.lsb > 30000 ? least : least - b.lsb;
    Rescaling s;
    s.a = by / 2 > most_a ? by / 2 : most_a;
    s.b = by - s.a;
    s.fits = by >= -carrier_info(0).emax && s.a <= 0 && s.b <= 0 && s.b >= most_b;
    return s;
}

// `addend`: facts about C.
inline Choice choose(const Request& r, const Stats& a, const Stats& b, const Stats& addend, int carrier, Isa::Directed directed) {
    const CarrierInfo i = carrier_info(carrier == 2 ? 1 : carrier);
    if (carrier == 2) return Choice{1, 0, grid_lanes(r) ? LANES : SCALAR, 0};
    if (native(r, carrier)) return Choice{carrier, r.fused ? FMA_NEAR : MA_NEAR, NONE, 0};
    const Facts f = block_facts(r, a, b, r.init == C_FIRST ? addend : EMPTY_STATS);
    Choice c = {carrier, 0, SCALAR, f.finite ? FINITE : 0};
    const int tiny = i.emin - i.bits + 1;
    const bool in_range = f.lsb >= tiny && f.product < ldexp(1.0, i.emax);  // products neither over- nor underflow
    const bool product_exact = c.exact_products = in_range && f.width <= i.bits;
    const int term_lsb = r.fused ? f.lsb : quantized_lsb(r.mul, f.lsb), term_width = r.fused ? f.width : r.mul.p;
    const int add_lsb = term_lsb < f.start_lsb ? term_lsb : f.start_lsb,
              add_width = term_width > f.start_width ? term_width : f.start_width;
    const bool fp32 = r.arithmetic == FP32;
    bool near = fp32;
    // before its rounding a sum is at most this: a register that overflowed is the end of the format, or no number
    const double clamp = isfinite(r.add.hi) ? fmax(fabs(r.add.hi), fabs(r.add.lo)) : f.bound;
    const double step_bound = fmin(f.bound, fmax(clamp, f.start) + f.product);
    const bool b1 = lemma_b(step_bound, add_lsb, i.bits) && in_range && (r.fused || product_exact);
    const bool a1 = lemma_a(r.add, add_width, i.bits) && in_range && (r.fused ? f.width <= i.bits : product_exact);
    const bool exact = a1 || b1;  // of finite terms; an infinity or NaN makes its output one, exactly, in any kernel
    near = near || exact;
    if (exact) c.proofs |= EXACT_STEPS;
    if (!near && !directed && !product_exact) return c;  // round to odd by error terms needs exact products
    const bool over_add = f.bound < r.add.hi && -f.bound > r.add.lo;
    const bool under_add = no_underflow(r.add, fp32 && !in_range ? -32768 : add_lsb);
    // Where the processor has a mode for all operations, the machine's own sums of arithmetic="fp32" would have it, too. They stay
    // nearest ones, which are cut by their bits or rounded apart (tiles/directed/nearest_then_directed.h).
    const bool stays = directed == Isa::TILES && fp32 && !exact && r.fused && carrier == 0;
    const bool in_modes = directed == Isa::DIRECTED || (directed == Isa::TILES && (exact || !fp32)) || stays;
    const bool in_part = carrier == 0 && has_wide_random_bits(r);
    int kind = cast_kind(r.add, c.carrier, f.finite, over_add, under_add, f.bound, !near, step_bound, in_modes, in_part);
    bool over = over_add, under = under_add;
    if (!r.fused) {
        const bool over_mul = f.product < r.mul.hi && -f.product > r.mul.lo;
        const bool under_mul = no_underflow(r.mul, fp32 && !in_range ? -32768 : f.lsb);
        const int km = cast_kind(r.mul, c.carrier, f.finite, over_mul, under_mul, f.product, !near, f.product, in_modes);
        // SAT and SPECIAL do not cover one another; a NaN or infinity made by the product reaches the sum
        const bool mixed = (kind == SAT && km == SPECIAL) || (kind == SPECIAL && km == SAT) || (km == SPECIAL && kind < SPECIAL);
        // an infinite product must mean to the sum's cast what an overflow of its own means
        const bool makes_inf = !over_mul && (isinf(r.mul.over_pos) || isinf(r.mul.over_neg));
        const bool alike = r.add.inf_pos == r.add.over_pos && r.add.inf_neg == r.add.over_neg;
        // a clamp of one cast is a clamp of both, and an infinite sum must find room above its format's range
        auto roomy = [&](const Cast& q) { return q.emax + 1 + i.bits - q.p + 1 <= i.emax; };
        const bool clamps = kind == FAST_CLAMP || km == FAST_CLAMP || kind == SPECIAL || km == SPECIAL;
        const bool room = !clamps || (roomy(r.mul) && roomy(r.add));
        const bool fast =
            room && (alike || !makes_inf) && kind >= FAST && km >= FAST && r.mul.mode == r.add.mode && draws(r.mul) == draws(r.add);
        const bool slow = (kind >= GENERAL || km >= GENERAL) && !fast;
        const int most = km > kind ? km : kind;
        if (slow) kind = r.mul.mode == SR || r.add.mode == SR ? RANDOM : GENERAL;
        else kind = mixed || !room ? GENERAL : most;
        if (kind == SAT && (r.mul.over_pos != r.mul.hi || r.add.over_pos != r.add.hi)) kind = GENERAL;
        if (kind == SPECIAL && (r.mul.over_pos == r.mul.hi || r.add.over_pos == r.add.hi)) kind = GENERAL;
        if (kind >= SUB && kind <= SPECIAL && ((r.mul.flags | r.add.flags) & NO_SUBNORMALS)) kind = GENERAL;
        if (kind == FTZ && !over_mul) kind = GENERAL;  // an overflow of one cast is none of the other's
        over = over && over_mul;
        under = under && under_mul;
    }
    if (r.init == C_FIRST) {
        // a register that starts as -0 keeps it while all products are -0: not the work of these two kinds
        if (kind == PLAIN) kind = (r.add.flags & NO_SUBNORMALS) || (!r.fused && (r.mul.flags & NO_SUBNORMALS)) ? GENERAL : SUB;
        if (kind >= FAST && kind <= FAST_CLAMP && (r.add.mode == RD || r.add.mode == RO)) kind = GENERAL;
    }
    c.nearest_sums = stays && (kind == FAST || kind == FAST_CLAMP);
    if (over) c.proofs |= NO_OVERFLOW;
    if (under) c.proofs |= NO_UNDERFLOW;
    if (directed == Isa::TILES && !near && !in_range && kind < GENERAL) kind = GENERAL;
    c.step = r.fused ? (near ? FMA_NEAR : FMA_ODD) : (near ? MA_NEAR : MA_ODD);
    c.kind = kind;
    const bool runs = r.wrapper_count > 0;  // of which each is lifted and brought back: only where it saves most
    if (carrier == 0 && (kind == SUB ? !runs || directed != Isa::DIRECTED : kind == FAST && r.add.mode == RTZ && r.fused && !runs))
        c.scaled_by = c.nearest_sums ? 0 : scaling_of(r, f, a.max_abs);
    if (carrier == 0 && r.fused && (kind == SUB || kind == FAST)) c.rescaling = rescaling_of(r.add, a, b);
    return c;
}

// The wager of kernel_choice_compensated.h for short_runs.h. Between two looks a value is the sum of at most two totals that were seen (|S| < most) and
// of 2n terms, n the steps; each passes at most 2n + 2 roundings, its own and those of its run and of the sums of totals, and each
// of these adds at most a share u and half a quantum.
inline bool make_runs_speculation(const Cast& add, double product, Speculation* w) {
    const int loses = add.mode == RNE ? add.p : add.p - 1;
    if (loses < 1) return false;  // of one bit: no number of steps is sure
    const double steps = ldexp(1.0, loses - 1), quantum = ldexp(1.0, add.flags & NO_SUBNORMALS ? add.emin : add.emin - loses + 1);
    w->steps = steps > 64 ? 64 : (int64_t)steps;
    const double n = (double)w->steps, g = exp((2 * n + 2) * ldexp(1.0, -loses)), end = fmin(add.hi, -add.lo);
    w->most = end / (5 * g);
    return 2 * n * g * 1.1 * (product + 2 * quantum) < end / 2;
}

// Register and innermost order in one kernel and one other direction (tiles/short_runs/short_runs_modes.cpp). Longer runs have fewer instructions a
// step in kernels of tiles.
constexpr int64_t DIRECTED_RUNS = 6;
inline bool runs_in_mode(const Request& r) {
    return r.fused && r.arithmetic == EXACT && (r.add.mode == RTZ || r.add.mode == RU || r.add.mode == RD) &&
           !(r.add.flags & NO_SUBNORMALS);
}
inline RunsPlan choose_directed_runs(const Request& r, RunsPlan plan, const Stats& a, const Stats& b, int carrier, int64_t longest) {
    const CarrierInfo i = carrier_info(carrier);
    const Facts f = block_facts(r, a, b, EMPTY_STATS);
    const double room = ldexp(1.0, i.emax - (i.bits - r.add.p + 1) - 8);
    if (longest > DIRECTED_RUNS || !f.finite || !make_runs_speculation(r.add, f.product, &plan.speculation) || f.product > room / 64) return plan;
    plan.speculation.most = fmin(plan.speculation.most, room / 64);
    plan.eights = longest <= 2 && longest <= plan.speculation.steps;
    plan.kind = FAST;
    return plan;
}

// Whether the register and the innermost order run in one kernel: one nearest-even cast for both, and a wager that
// nothing overflows where that is not proved. Where it cannot be made or is lost, the kernel with clamps serves orders.
inline RunsPlan choose_runs(const Request& r, const Choice& c, const Stats& a, const Stats& b, Isa::Directed directed) {
    RunsPlan plan;
    plan.step = c.step;
    const bool own = c.kind == FAST || c.kind == FAST_CLAMP;
    if (r.method != REGISTER || (c.kind > FTZ && !(own && runs_in_mode(r)))) return plan;
    const Wrapper* const w = order_of_same(r);
    int64_t longest = r.k;
    if (w) {
        plan.shape = w->order == PAIRWISE || w->pairs ? RunsPlan::PAIRS : RunsPlan::SEQUENCE;
        longest = longest_run(r, *w);
    } else if (c.kind <= SUB || own) return plan;  // the plain kernel has nothing to lose
    if (own) return choose_directed_runs(r, plan, a, b, c.carrier, longest);
    // Long runs are better watched (tiles/nearest/speculative.h), by a kernel of tiles; but for sums of exact products, which are on midpoints often.
    if (w && directed == Isa::DIRECTED && c.step == FMA_ODD && c.kind <= SUB && longest >= SPECULATIVE_RUNS && !c.exact_products &&
        r.add.p + 11 <= carrier_info(c.carrier).bits)
        return RunsPlan();
    // with longer runs, more rows at a time fill the registers better
    const int64_t few = c.kind == NONE ? 4 : directed == Isa::TILES && c.step == FMA_ODD ? 1 : 2;
    plan.eights = longest <= few;
    if (c.kind == NONE) {
        plan.kind = NONE;
        return plan;
    }
    const CarrierInfo i = carrier_info(c.carrier);
    const Facts f = block_facts(r, a, b, EMPTY_STATS);
    // By modes those of double lanes are, too, whose products have so many bits below the register's that few sums are on midpoints.
    if (w && directed == Isa::TILES && c.step == FMA_ODD && c.carrier == 1 && longest >= WIDE_RUNS && f.width >= r.add.p + 10)
        return RunsPlan();
    const bool product_exact = f.width <= i.bits && f.lsb >= i.emin - i.bits + 1 && f.product < ldexp(1.0, i.emax);
    const double room = ldexp(1.0, i.emax - (i.bits - r.add.p + 1) - 8);
    const bool in_two_modes = w && longest <= (c.kind <= SUB ? 6 : 12) && c.step == FMA_ODD && directed == Isa::TILES && f.product <= room;
    if (directed != Isa::DIRECTED && (c.step == FMA_ODD || c.step == MA_ODD) && !product_exact && !in_two_modes) return plan;  // vec.h
    if ((w && 2 * r.add.p > i.bits - 1) || r.add.mode != RNE || !f.finite) return plan;
    plan.clamps = w && c.kind > SUB;
    if (!make_runs_speculation(r.add, f.product, &plan.speculation) || f.product > room / 64 || (!r.fused && c.kind > SUB)) {
        if (plan.clamps) plan.kind = SPECIAL;
    } else {
        plan.speculation.most = fmin(plan.speculation.most, room / 64);
        plan.eights = plan.eights && longest <= plan.speculation.steps;
        plan.kind = c.kind == PLAIN || c.kind == FTZ ? c.kind : SUB;
    }
    // a run of one term rounds its product; where that is exact in the carrier, there is nothing to make odd
    if (w && longest == 1 && plan.step == FMA_ODD && product_exact) plan.step = FMA_NEAR;
    return plan;
}

}  // namespace gemmsim
