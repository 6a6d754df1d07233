// Computes what the choice of a kernel rests on, from the formats and from facts about the data: lanes, step, rounding and what is proved.
// The functions here choose a carrier, and steps and roundings of a plain register. kernel_choice_runs.h does so for its short runs,
// kernel_choice_compensated.h and kernel_choice_totals.h for the other accumulators. The rules of kernel_table.cpp then choose the kernel.
// Every choice rests on a proof that a cheaper kernel gives the same bits; docs/design/cpu.md states the lemmas.
#pragma once
#include <initializer_list>
#include <stdlib.h>
#include <string.h>
#include "product/bounds.h"

namespace gemmsim {

// What was proved: a bit mask, which users see in words.
enum Proof : int32_t { NO_OVERFLOW = 1, NO_UNDERFLOW = 2, EXACT_STEPS = 4, FINITE = 8 };

// How the operands of exact sums are sliced: `a` and `b` slices of `width` bits each, below 2^top_a and 2^top_b.
// If `a` is 0, operands are not sliced. All products are multiples of 2^unit.
struct Slices {
    static constexpr int MOST = 4;
    static constexpr int64_t FLUSH = 1024;  // terms that double lanes add before 128-bit integers take their sums
    int a = 0, b = 0, width = 0, top_a = 0, top_b = 0, unit = 0;
};

// Double registers for sums by exponent (BINNED): one for each of `count` exponent fields, from `first` on.
// If `count` is 0, registers are not doubles.
struct DoubleBins {
    int first = 0, count = 0;
};

// How an accumulator is computed: by a kernel of tiles, which the step and the kind name; by a vector kernel of its own; or one element at
// a time.
enum class Path : uint8_t { TILES, LANES, SCALAR };

struct Choice {
    int carrier, step;
    Rounding kind;
    int32_t proofs;
    Path path = Path::TILES;
    IntegerLanes integers = {};
    Speculation speculation = {};
    RunsPlan runs = {};
    bool exact_products = false;  // every product is a number of the carrier; compensated sums: and has few bits
    bool nearest_sums = false;    // DIRECTED and DIRECTED_CLAMP with Isa::TILES: sums are the carrier's nearest ones in every mode
    int scaled_by = 0;            // plain register: the value that Tile::scaled_by may have
    Rescaling rescaling = {};     // plain register of floats that may have sums below 2^emin
    // Compensated sums: all operations of float panels are in double lanes; and the roundings of a tile whose speculation failed.
    bool wide = false;
    CompensatedRounding fallback = {Rounding::ANY_MODE};
    Slices slices = {};
    DoubleBins bins = {};
    int kept = 0;  // matrix unit's step: HardwareModel::kept, or enough bits to truncate nothing
    bool in_fp16 = false;  // the register and the operands are binary16 (uses_fp16)

    // A choice without step and kind.
    static Choice of(Path path, int carrier, int32_t proofs = 0) { return Choice{carrier, 0, Rounding::NATIVE, proofs, path}; }
};

struct CarrierInfo {
    int bits, emin, emax;  // significand bits, exponents of normal numbers
};
inline CarrierInfo carrier_info(int carrier) { return carrier == 0 ? CarrierInfo{24, -126, 127} : CarrierInfo{53, -1022, 1023}; }

inline int dtype_bits(int dtype) { return dtype == F32 ? 24 : dtype == F64 ? 53 : dtype == F16 ? 11 : 8; }
inline int operand_bits(const Cast& c, int dtype) {
    const int d = dtype_bits(dtype);
    return (c.flags & PRESENT) && c.p < d ? c.p : d;
}

// Whether the cast's format is the carrier itself, rounded to nearest even. The processor's own operation then is the definition.
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

// Whether the carrier has the bits and exponents to round to this cast's format.
// `spare`: it also has spare bits below the format's last place, two, or r + 1 with r random bits. Rounding a carrier value that was
// rounded to odd then gives the correctly rounded value.
inline bool fits(const Cast& c, int carrier, bool spare) {
    const CarrierInfo i = carrier_info(carrier);
    if (!vector_mode(c) || c.emin < i.emin || c.emax > i.emax || c.emin + i.bits - c.p >= i.emax) return false;
    const int extra = c.mode == SR ? c.rbits + 1 : 2;
    return c.mode == SR ? c.p + (spare ? extra : 0) <= i.bits && c.rbits <= i.bits - 1 : c.p + (spare ? extra : 0) <= i.bits;
}

// Whether float represents the ends of a cast's range, and what the cast makes of infinities and overflows.
inline bool ends_are_floats(const Cast& c) {
    for (const double end : {c.lo, c.hi, c.over_neg, c.over_pos, c.inf_neg, c.inf_pos})
        if (end == end && (double)(float)end != end) return false;
    return true;
}

inline bool operand_fits_float(const Cast& c, int dtype) {
    if (dtype != F64) return !(c.flags & PRESENT) || (c.emax <= 127 && ends_are_floats(c));
    return (c.flags & PRESENT) && c.p <= 24 && c.emax <= 127 && c.emin - c.p + 1 >= -149;
}

// Whether float lanes represent only a part of a stochastic register's random bits (tiles/stochastic/stochastic.h).
// Only plain registers of at most 15 bits qualify. A float has at least 9 bits below their last place, so the other random bits seldom
// decide a rounding.
inline bool has_wide_random_bits(const Request& r) {
    if (r.add.p > 15) return false;
    for (int w = 0; w < r.wrapper_count; ++w)
        if (r.wrappers[w].order != SHUFFLED) return false;
    return r.method == REGISTER && r.fused && r.arithmetic == EXACT && r.add.mode == SR && r.init != C_LAST && !fits(r.add, 0, true) &&
           fits(r.add, 0, false) && fits(r.add, 1, true);
}

// Whether float represents the operands, the register's values and all partial sums, which tiles store.
inline bool integers_fit_float(const Request& r) {
    for (int w = 0; w < r.wrapper_count; ++w) {
        const Cast& c = r.wrappers[w].cast;
        if (r.wrappers[w].order != SHUFFLED && (c.p > 24 || c.emin > 126 || c.emax > 127 || c.emin - c.p + 1 < -149)) return false;
    }
    const int frac = r.method == FIXED ? r.integer.frac : 0;
    return r.integer.bits <= 24 && frac <= 149 && r.integer.bits - frac <= 127 && operand_fits_float(r.a, r.dtype_a) &&
           operand_fits_float(r.b, r.dtype_b);
}

// The carrier whose kernels round all casts of a request, independent of the data: 0 float lanes, 1 double lanes.
// 2: neither. Panels then are doubles, or floats with arithmetic="fp32". Scalar code or a special kernel computes the product.
// `directed`: kernels round the sum of any operands to odd. `least` 1 excludes float lanes. `codes`: operands are codes of a table.
inline int choose_carrier(const Request& r, bool directed, int least = 0, bool codes = false) {
    const bool two = !r.fused;
    const bool plain = r.arithmetic == FP32;
    auto wrapped = [&](int carrier) {  // whether this carrier can also round every combination
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
    // Compensated sums to nearest even need lemma A for sums of two registers.
    const bool roomy = r.method == REGISTER || 2 * r.add.p <= 23 || r.add.mode != RNE;
    if (f && roomy && (directed || width <= 24) && fits(r.add, 0, true) && (!two || fits(r.mul, 0, true)) && wrapped(0)) return 0;
    if (f && directed && !codes && has_wide_random_bits(r)) return 0;
    if (is_native(r.add, 1) && (!two || is_native(r.mul, 1)) && wrapped(1)) return 1;
    if ((directed || width <= 53) && fits(r.add, 1, true) && (!two || fits(r.mul, 1, true)) && wrapped(1)) return 1;
    return 2;
}

// Whether compensated sums have their own kernels for this mode (tiles/compensated/compensated_modes.h).
inline bool compensated_mode(const Cast& c) { return c.mode > RNE && c.mode <= SR; }

// Whether, with Isa::TILES, float lanes compute this compensated sum for any operands (tiles/compensated/compensated.h).
inline bool speculative_terms(const Request& r) {
    if (r.method < KAHAN || r.method > FAST_TWO_SUM || r.arithmetic != EXACT) return false;
    return compensated_mode(r.add) || (r.add.mode == RNE && 2 * r.add.p <= 23 && (r.fused || 2 * r.mul.p <= 23));
}

inline bool same_cast(const Cast& x, const Cast& y) {
    // An overflow may become NaN, which == never finds equal.
    auto same = [](double p, double q) { return memcmp(&p, &q, sizeof p) == 0; };
    return x.p == y.p && x.emin == y.emin && x.mode == y.mode && x.flags == y.flags && x.emax == y.emax && same(x.lo, y.lo) &&
           same(x.hi, y.hi) && same(x.over_pos, y.over_pos) && same(x.over_neg, y.over_neg) && same(x.inf_pos, y.inf_pos) &&
           same(x.inf_neg, y.inf_neg);
}

// The innermost order if it combines partial sums by the register's cast, in sequence or in pairs; else null.
inline const Wrapper* order_of_same(const Request& r) {
    const Wrapper* const w = r.wrapper_count ? &r.wrappers[r.wrapper_count - 1] : nullptr;
    return w && (w->order == CHUNKED || w->order == PAIRWISE || w->order == INTERLEAVED) && same_cast(w->cast, r.add) ? w : nullptr;
}
inline int64_t longest_run(const Request& r, const Wrapper& w) {
    return w.order == INTERLEAVED ? (r.k + w.n - 1) / w.n : w.n < r.k ? w.n : r.k;
}

// Whether every run is one term, so that float lanes add rounded products of any operands (tiles/short_runs/short_runs.h).
inline bool single_terms(const Request& r) {
    const Wrapper* const w = order_of_same(r);
    return w && r.method == REGISTER && r.fused && r.arithmetic == EXACT && r.add.mode == RNE && 2 * r.add.p <= 23 &&
           longest_run(r, *w) == 1;
}

// Number of terms of the shortest run, without a shorter rest at an end.
// This is an estimate: it takes each order as if that one alone divided all terms. A result of r.k or more means that no order does.
inline int64_t shortest_run(const Request& r) {
    int64_t shortest = INT64_MAX;
    for (int w = 0; w < r.wrapper_count; ++w) {
        const Wrapper& x = r.wrappers[w];
        if (x.order == SHUFFLED) continue;
        const int64_t n = x.order == SCHEDULED ? r.schedule->shortest : x.order == CHUNKED || x.order == PAIRWISE ? x.n : r.k / x.n;
        if (n < shortest) shortest = n;
    }
    return shortest;
}

// Whether a kernel of tiles computes each run. short_runs.h computes runs of one term that are rounded to nearest even in CPU registers,
// and needs exact products for them.
inline bool long_runs(const Request& r) { return r.method == REGISTER && (shortest_run(r) >= 2 || r.add.mode != RNE); }

// Whether irregular_format.cpp can apply this cast to a double that was rounded to odd. The double must have spare bits below the
// format's last place or last random bit. No sum may come near the ends of double's range.
inline bool grid_lanes_fit(const Cast& c) {
    if (c.mode < RNE || c.mode > SR || (c.flags & NO_ZERO)) return false;
    if (c.p < 2 && !(c.flags & SUPERNORMAL)) return false;  // p = 1 decides ties by parity of codes; p = 0 has no bits
    if (c.mode == SR && (c.flags & FIRST_IS_ZERO)) return false;
    return c.p + (c.mode == SR ? c.rbits + 1 : 2) <= 53 && c.emin - c.p + 1 > -900 && c.emax < 900;
}

// Whether double lanes compute a register that neither carrier's kernels round (tiles/other/irregular_format.cpp). Products are
// exact there.
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

// Number of random draws in one Philox call: 8 of up to 16 bits, 4 of more; 0 if the cast is not stochastic.
inline int draws(const Cast& c) { return c.mode != SR ? 0 : c.rbits <= 16 ? 8 : 4; }

// The kind of rounding that this cast needs, given what is proved.
inline Rounding cast_kind(const Cast& c, int carrier, bool finite, bool overflow_free, bool underflow_free, double bound, bool odd_steps,
                          double step_bound, bool directed, bool has_wide_random_bits = false) {
    const CarrierInfo i = carrier_info(carrier);
    const int scaled_by = i.bits - c.p + 1;  // the magic number is this many binades above the value
    // Without subnormals, the magic number of 2^emin must fit the carrier, too.
    const bool flush = c.flags & NO_SUBNORMALS, low_fits = !flush || c.emin + i.bits <= i.emax;
    if (c.mode != RNE) {
        const bool spare = has_wide_random_bits || c.p + (c.mode == SR ? c.rbits : 1) <= i.bits - 1;
        const bool step_safe = odd_steps || step_bound < ldexp(1.0, i.emax);
        if (directed && finite && spare && step_safe && low_fits) {
            if (overflow_free && bound < ldexp(1.0, i.emax - scaled_by)) return Rounding::DIRECTED;
            if (c.emax + 1 + scaled_by <= i.emax) return Rounding::DIRECTED_CLAMP;
        }
        return c.mode == SR ? Rounding::STOCHASTIC : Rounding::ANY_MODE;
    }
    if (!finite || c.p > i.bits - 2) return Rounding::ANY_MODE;
    if (overflow_free && bound < ldexp(1.0, i.emax - scaled_by)) {
        if (underflow_free) return Rounding::NORMAL;
        if (!flush) return Rounding::SUBNORMALS;
        if (low_fits) return Rounding::FLUSH;
    }
    if (flush && !low_fits && !underflow_free) return Rounding::ANY_MODE;
    if (c.emax + 1 + scaled_by > i.emax) return Rounding::ANY_MODE;
    if (!odd_steps && !(step_bound < ldexp(1.0, i.emax))) return Rounding::ANY_MODE;  // the carrier itself may overflow
    const bool clamps = c.over_pos == c.hi && c.over_neg == c.lo;
    const bool inf = c.over_pos == c.inf_pos && c.over_neg == c.inf_neg;
    const bool nan = c.over_pos != c.over_pos && c.over_neg != c.over_neg;
    if (flush && !underflow_free) return clamps || inf || nan ? Rounding::FLUSH : Rounding::ANY_MODE;
    return clamps ? Rounding::SATURATE : inf || nan ? Rounding::OVERFLOWS : Rounding::ANY_MODE;
}

// The power of two that rescales the format's least normal number to 2, the first float whose exponent has the highest bit set.
// 0 if scaled values could leave float's range. The caller has proved that no value overflows the format.
inline int scaling_of(const Request& r, const Facts& f, double most_a) {
    const int by = 1 - r.add.emin, p = r.fused || r.add.p < r.mul.p ? r.add.p : r.mul.p;
    const int emax = r.fused || r.add.emax > r.mul.emax ? r.add.emax : r.mul.emax;
    const double most = fmax(fmax(most_a, f.product), f.bound);
    if (by <= 0 || (!r.fused && r.mul.emin != r.add.emin) || r.add.p > SHORT_BITS_OF_FLOATS || (!r.fused && r.mul.p > SHORT_BITS_OF_FLOATS))
        return 0;
    // Unscaled floats below 2^-126 have fewer bits. They round as scaled ones only if half of the format's quantum is not below 2^-126.
    if (r.add.emin - r.add.p < carrier_info(0).emin) return 0;
    return emax + by + 26 - p <= 127 && most < ldexp(1.0, 127 - by) ? by : 0;
}

// Whether sums of a register to nearest even may be rounded by an addition to their bits and a truncation.
inline bool truncates_nearest(const Request& r) {
    return r.method == REGISTER && r.init == FROM_ZERO && r.fused && r.arithmetic == EXACT && r.add.mode == RNE && r.add.p >= 2 &&
           r.add.p <= 13 && (r.add.flags & NEG_ZERO) && !(r.add.flags & NO_SUBNORMALS);
}
// Whether the lowest bits of terms exclude most of them as a cause of midpoints.
// The lowest bit of a product of two 24-bit numbers is some 46 places below its highest. In formats with few exponent bits (emin >= -32)
// that is below half of the quantum.
inline bool lowest_bits_help(const Request& r) {
    return truncates_nearest(r) && r.add.emin >= -32 && shortest_run(r) >= SHORTEST_TRUNCATED_RUN;
}
// A term may lead to a midpoint only if Isa::lowest_bits of its two factors add up to at least this number. It stands for half of the
// register's quantum, biased by 127 twice (tiles/nearest/midpoint_filter.h).
inline int midpoints_from(const Cast& add) { return add.emin - add.p + 2 * 127; }

// Whether all elements of an operand are numbers of binary16: multiples of 2^-24 of at most 11 bits, up to 65504.
inline bool of_binary16(const Stats& x) { return !x.non_finite && x.width <= 11 && (x.lsb >= -24 || x.max_abs == 0) && x.max_abs <= 65504; }

// Whether AVX512-FP16 computes the product: a plain register of binary16 from +0, whose operands are numbers of binary16.
// The mode must be one of the processor's steps in which an exact zero sum is +0. Rounding down would give -0.
inline bool uses_fp16(const Isa& isa, const Request& r, const Choice& c, const Stats& a, const Stats& b) {
    const Cast& x = r.add;
    if (!isa.fp16 || r.method != REGISTER || r.wrapper_count || r.init != FROM_ZERO || !r.fused || c.carrier != 0) return false;
    if (c.path != Path::TILES || x.p != 11 || x.emin != -14 || x.emax != 15 || !(x.flags & NEG_ZERO) || (x.flags & NO_SUBNORMALS))
        return false;
    if (r.arithmetic != EXACT || !of_binary16(a) || !of_binary16(b)) return false;
    const bool infinities = x.over_pos == x.inf_pos && x.over_neg == x.inf_neg && isinf(x.inf_pos) && isinf(x.inf_neg);
    if (x.mode == RNE) return c.kind == Rounding::NORMAL || c.kind == Rounding::SUBNORMALS || (c.kind == Rounding::OVERFLOWS && infinities);
    return c.kind == Rounding::DIRECTED && (x.mode == RTZ || x.mode == RU);
}

// Estimates how many vectors of a tile's step have a sum below 2^emin. The estimate uses the mean magnitudes of the largest row of A and
// the largest panel of B. It assumes operands of both signs, whose sums grow like the square root of the number of terms in a run.
inline double small_vectors(const Request& r, const Stats& a, const Stats& b, int nr) {
    const double k = (double)r.k, run = fmin(k, (double)shortest_run(r)), product = a.row_sum / k * (b.row_sum / (k * nr)),
                 near_zero = 1.3 * ldexp(1.0, r.add.emin) / (product * sqrt(run));
    return product > 0 ? (double)(MR * nr) * near_zero : 0;
}

// The powers of two by which panels are multiplied so that 2^emin becomes the least normal float. Each operand takes half if its lowest
// bit stays a normal float; otherwise A takes less and B the rest. `fits`: this leaves all elements normal floats.
inline Rescaling rescaling_of(const Cast& add, const Stats& a, const Stats& b) {
    const int least = carrier_info(0).emin, by = least - add.emin;
    const int most_a = a.lsb > 30000 ? least : least - a.lsb, most_b = b.lsb > 30000 ? least : least - b.lsb;
    Rescaling s;
    s.a = by / 2 > most_a ? by / 2 : most_a;
    s.b = by - s.a;
    s.fits = by >= -carrier_info(0).emax && s.a <= 0 && s.b <= 0 && s.b >= most_b;
    return s;
}

// Chooses the kernel of a plain register. `addend`: facts about C.
inline Choice choose(const Request& r, const Stats& a, const Stats& b, const Stats& addend, int carrier, Isa::Directed directed) {
    const CarrierInfo i = carrier_info(carrier == 2 ? 1 : carrier);
    if (carrier == 2) return Choice::of(grid_lanes(r) ? Path::LANES : Path::SCALAR, 1);
    if (native(r, carrier)) return Choice{carrier, r.fused ? FMA_NEAR : MA_NEAR, Rounding::NATIVE, 0};
    const Facts f = block_facts(r, a, b, r.init == C_FIRST ? addend : EMPTY_STATS);
    Choice c = Choice::of(Path::SCALAR, carrier, f.finite ? FINITE : 0);
    const int tiny = i.emin - i.bits + 1;
    const bool in_range = f.lsb >= tiny && f.product < ldexp(1.0, i.emax);  // products neither overflow nor underflow
    const bool product_exact = c.exact_products = in_range && f.width <= i.bits;
    const int term_lsb = r.fused ? f.lsb : quantized_lsb(r.mul, f.lsb), term_width = r.fused ? f.width : r.mul.p;
    const int add_lsb = term_lsb < f.start_lsb ? term_lsb : f.start_lsb,
              add_width = term_width > f.start_width ? term_width : f.start_width;
    const bool fp32 = r.arithmetic == FP32;
    bool near = fp32;
    // A sum before its rounding is at most `step_bound`. A register is never past the format's end: if it overflowed, it is that end,
    // infinite or NaN.
    const double clamp = isfinite(r.add.hi) ? fmax(fabs(r.add.hi), fabs(r.add.lo)) : f.bound;
    const double step_bound = fmin(f.bound, fmax(clamp, f.start) + f.product);
    const bool b1 = lemma_b(step_bound, add_lsb, i.bits) && in_range && (r.fused || product_exact);
    const bool a1 = lemma_a(r.add, add_width, i.bits) && in_range && (r.fused ? f.width <= i.bits : product_exact);
    // This holds for finite terms. An infinity or NaN makes its output infinite or NaN in every kernel, and exactly.
    const bool exact = a1 || b1;
    near = near || exact;
    if (exact) c.proofs |= EXACT_STEPS;
    if (!near && !directed && !product_exact) return c;  // rounding to odd by error terms needs exact products
    const bool over_add = f.bound < r.add.hi && -f.bound > r.add.lo;
    const bool under_add = no_underflow(r.add, fp32 && !in_range ? -32768 : add_lsb);
    // With Isa::TILES the processor's rounding mode would apply to the carrier's own sums of arithmetic="fp32", too. These sums must stay
    // nearest. Kernels truncate their bits, or round them in a pass of its own (tiles/directed/mode_switch.h).
    const bool stays = directed == Isa::TILES && fp32 && !exact && r.fused && carrier == 0;
    const bool in_modes = directed == Isa::DIRECTED || (directed == Isa::TILES && (exact || !fp32)) || stays;
    const bool in_part = carrier == 0 && has_wide_random_bits(r);
    Rounding kind = cast_kind(r.add, c.carrier, f.finite, over_add, under_add, f.bound, !near, step_bound, in_modes, in_part);
    bool over = over_add, under = under_add;
    if (!r.fused) {
        const bool over_mul = f.product < r.mul.hi && -f.product > r.mul.lo;
        const bool under_mul = no_underflow(r.mul, fp32 && !in_range ? -32768 : f.lsb);
        const Rounding km = cast_kind(r.mul, c.carrier, f.finite, over_mul, under_mul, f.product, !near, f.product, in_modes);
        // Neither SATURATE nor OVERFLOWS does the other's work. A NaN or infinity that the product's cast makes reaches the sum.
        const bool mixed = (kind == Rounding::SATURATE && km == Rounding::OVERFLOWS) ||
                           (kind == Rounding::OVERFLOWS && km == Rounding::SATURATE) ||
                           (km == Rounding::OVERFLOWS && kind < Rounding::OVERFLOWS);
        // The sum's cast must turn an infinite product into what its own overflow becomes.
        const bool makes_inf = !over_mul && (isinf(r.mul.over_pos) || isinf(r.mul.over_neg));
        const bool alike = r.add.inf_pos == r.add.over_pos && r.add.inf_neg == r.add.over_neg;
        // If one cast clamps, the kernel clamps in both. An infinite sum then needs room in the carrier above its format's range.
        auto roomy = [&](const Cast& q) { return q.emax + 1 + i.bits - q.p + 1 <= i.emax; };
        const bool clamps =
            kind == Rounding::DIRECTED_CLAMP || km == Rounding::DIRECTED_CLAMP || kind == Rounding::OVERFLOWS || km == Rounding::OVERFLOWS;
        const bool room = !clamps || (roomy(r.mul) && roomy(r.add));
        const bool fast = room && (alike || !makes_inf) && kind >= Rounding::DIRECTED && km >= Rounding::DIRECTED &&
                          r.mul.mode == r.add.mode && draws(r.mul) == draws(r.add);
        const bool slow = (kind >= Rounding::ANY_MODE || km >= Rounding::ANY_MODE) && !fast;
        const Rounding most = km > kind ? km : kind;
        if (slow) kind = r.mul.mode == SR || r.add.mode == SR ? Rounding::STOCHASTIC : Rounding::ANY_MODE;
        else kind = mixed || !room ? Rounding::ANY_MODE : most;
        if (kind == Rounding::SATURATE && (r.mul.over_pos != r.mul.hi || r.add.over_pos != r.add.hi)) kind = Rounding::ANY_MODE;
        if (kind == Rounding::OVERFLOWS && (r.mul.over_pos == r.mul.hi || r.add.over_pos == r.add.hi)) kind = Rounding::ANY_MODE;
        if (kind >= Rounding::SUBNORMALS && kind <= Rounding::OVERFLOWS && ((r.mul.flags | r.add.flags) & NO_SUBNORMALS))
            kind = Rounding::ANY_MODE;
        if (kind == Rounding::FLUSH && !over_mul) kind = Rounding::ANY_MODE;  // an overflow of one cast need not be one of the other
        over = over && over_mul;
        under = under && under_mul;
    }
    if (r.init == C_FIRST) {
        // A register that starts as -0 stays -0 while all products are -0. Neither NORMAL nor DIRECTED in these modes preserves it.
        if (kind == Rounding::NORMAL)
            kind = (r.add.flags & NO_SUBNORMALS) || (!r.fused && (r.mul.flags & NO_SUBNORMALS)) ? Rounding::ANY_MODE : Rounding::SUBNORMALS;
        if (kind >= Rounding::DIRECTED && kind <= Rounding::DIRECTED_CLAMP && (r.add.mode == RD || r.add.mode == RO))
            kind = Rounding::ANY_MODE;
    }
    c.nearest_sums = stays && (kind == Rounding::DIRECTED || kind == Rounding::DIRECTED_CLAMP);
    if (over) c.proofs |= NO_OVERFLOW;
    if (under) c.proofs |= NO_UNDERFLOW;
    if (directed == Isa::TILES && !near && !in_range && kind < Rounding::ANY_MODE) kind = Rounding::ANY_MODE;
    c.path = Path::TILES;
    c.step = r.fused ? (near ? FMA_NEAR : FMA_ODD) : (near ? MA_NEAR : MA_ODD);
    c.kind = kind;
    const bool runs = r.wrapper_count > 0;  // each run is scaled and scaled back, so runs are scaled only where that saves most
    if (carrier == 0 && (kind == Rounding::SUBNORMALS ? !runs || directed != Isa::DIRECTED
                                                      : kind == Rounding::DIRECTED && r.add.mode == RTZ && r.fused && !runs))
        c.scaled_by = c.nearest_sums ? 0 : scaling_of(r, f, a.max_abs);
    if (carrier == 0 && r.fused && (kind == Rounding::SUBNORMALS || kind == Rounding::DIRECTED)) c.rescaling = rescaling_of(r.add, a, b);
    return c;
}

}  // namespace gemmsim
