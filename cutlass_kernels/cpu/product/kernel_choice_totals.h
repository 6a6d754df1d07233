// Chooses the kernels of exact sums, sums by exponent, integers and matrix instructions, and of combining the partial sums of runs.
// It continues kernel_choice.h, for accumulators other than plain registers and compensated sums.
#pragma once
#include "product/hardware_model.h"
#include "product/sliced.h"

namespace gemmsim {

// The most terms in one run of the innermost accumulator.
inline int64_t longest_run(const Request& r) {
    int64_t k = r.k;
    for (int w = 0; w < r.wrapper_count && k > 0; ++w) {
        const int64_t n = r.wrappers[w].n, order = r.wrappers[w].order;
        if (order == SCHEDULED) k = r.schedule->longest;
        else if (order == SPLITK || order == INTERLEAVED) k = (k + n - 1) / n;
        else if (order == CHUNKED || order == PAIRWISE || order == SCALED) k = n < k ? n : k;
        // A run of any other order may have all terms.
    }
    return k;
}

// Bound of the sum of magnitudes of a run's products. The factor covers the rounding of this bound, not that of the register.
inline double run_bound(const Request& r, const Stats& a, const Stats& b) {
    return fmin(a.row_sum * b.max_abs, (double)longest_run(r) * a.max_abs * b.max_abs) * (1 + 1e-12);
}

// The long accumulator (LONG). By lemma B double lanes replace it if double has every sum of a run exactly; they take NaN and infinities,
// too. Otherwise finite operands are sliced if few slices suffice. Scalar code computes the rest.
inline Choice choose_exact(const Request& r, const Stats& a, const Stats& b) {
    const CarrierInfo i = carrier_info(1);
    const bool zero = a.lsb > 30000 || b.lsb > 30000, in_range = a.max_abs * b.max_abs < ldexp(1.0, i.emax);
    if (zero || (in_range && a.lsb + b.lsb >= i.emin && lemma_b(run_bound(r, a, b), a.lsb + b.lsb, i.bits)))
        return Choice{1, FMA_NEAR, Rounding::NATIVE, EXACT_STEPS};
    Choice c = Choice::of(Path::SCALAR, 1);
    if (a.non_finite || b.non_finite) return c;
    c.slices = choose_slices(a, b, longest_run(r));
    if (c.slices.a) {
        c.path = Path::LANES;
        c.proofs = EXACT_STEPS;
    }
    return c;
}

// Sums by exponent (BINNED). Registers are doubles if a double has the sum of any two values of a register exactly. The range of exponents
// must be below 512, so that a row of a tile has at most eight thousand registers. Scalar code computes the rest.
inline Choice choose_binned(const Request& r, const Stats& a, const Stats& b) {
    Choice c = Choice::of(Path::SCALAR, 1);
    const CarrierInfo i = carrier_info(1);
    if (a.non_finite || b.non_finite || a.width + b.width + r.integer.bits > i.bits) return c;
    const bool zero = a.lsb > 30000 || b.lsb > 30000;
    const int least = zero ? 0 : a.lsb + b.lsb, most = zero ? 0 : ilogb(a.max_abs) + ilogb(b.max_abs) + 1;
    if (least < i.emin || most + r.integer.bits + 1 > i.emax || most - least >= 512) return c;
    c.path = Path::LANES;
    c.bins.first = least + i.emax;
    c.bins.count = most - least + 1;
    return c;
}

// Registers of integers (INTEGER, FIXED): floating-point lanes if every sum is exact there, else the scalar kernel.
inline Choice choose_integers(const Request& r, const Stats& a, const Stats& b, bool float_panels) {
    const Choice scalar = Choice::of(Path::SCALAR, float_panels ? 0 : 1);
    const Register& g = r.integer;
    const bool fixed = r.method == FIXED;
    IntegerLanes how = {};
    how.low = g.is_signed ? -ldexp(1.0, g.bits - 1) : 0;
    how.high = ldexp(1.0, g.is_signed ? g.bits - 1 : g.bits) - 1;
    how.scale = ldexp(1.0, fixed ? g.frac : -g.shift);
    if (fixed || g.shift) {
        switch (fixed ? r.mul.mode : RD) {
            case RNE: how.round = IntegerLanes::NEAREST; break;
            case RTZ: how.round = IntegerLanes::TRUNCATE; break;
            case RU: how.round = IntegerLanes::UP; break;
            case RD: how.round = IntegerLanes::DOWN; break;
            default: return scalar;
        }
    }
    if (a.non_finite || b.non_finite) return scalar;
    const bool zero = a.lsb > 30000 || b.lsb > 30000;
    const double term = a.max_abs * b.max_abs * how.scale + 1;
    const double sum = (run_bound(r, a, b) * how.scale + (how.round ? (double)longest_run(r) : 0)) * (1 + 1e-12);
    const bool inside = sum <= how.high && -sum >= how.low;
    // If no product is rounded and no sum leaves the register's range, the result is a plain sum of products. The panels' own lanes
    // compute it if they have it exactly (lemma B).
    const int own = float_panels ? 0 : 1;
    const bool whole = fixed ? zero || a.lsb + b.lsb >= -g.frac : how.round == IntegerLanes::NONE;
    if (inside && whole &&
        (zero || (a.lsb + b.lsb >= carrier_info(own).emin && lemma_b(run_bound(r, a, b), a.lsb + b.lsb, carrier_info(own).bits))))
        return Choice{own, FMA_NEAR, Rounding::NATIVE, NO_OVERFLOW | EXACT_STEPS};
    how.clamp = g.saturate && !g.at_end && !inside;
    const double reach = how.clamp ? fmax(how.high, -how.low) + term : sum;
    for (int lanes = float_panels ? 0 : 1; lanes < 2; ++lanes) {
        const CarrierInfo i = carrier_info(lanes);
        const double most = ldexp(1.0, i.bits);
        // Products that are rounded must be exact before. Products that are not are exact whenever their sums are.
        const bool product = !how.round || (a.width + b.width <= i.bits &&
                                            (zero || (a.lsb + b.lsb >= i.emin && a.lsb + b.lsb + ilogb(how.scale) >= i.emin)) &&
                                            a.max_abs * b.max_abs < ldexp(1.0, i.emax));
        if (product && reach < most && term < most && (how.round == IntegerLanes::NONE || abs(g.frac) < 100))
            return Choice{lanes, 0, Rounding::NATIVE, inside ? NO_OVERFLOW : 0, Path::LANES, how};
    }
    return scalar;
}

// Number of bits below a step's largest exponent that represent its products and the register without truncation.
// -1: more than KEPT_IN_INTEGER, the most that 128-bit integers can add.
inline int exact_bits(const Request& r, const Stats& a, const Stats& b) {
    if (a.lsb > 30000 || b.lsb > 30000) return 1;
    const HardwareModel& m = r.hardware;
    const double steps = (double)r.k / m.products + 1, bound = (run_bound(r, a, b) + steps * ldexp(1.0, r.add.emin)) * growth(r.add, steps);
    if (!(bound < ldexp(1.0, 300))) return -1;
    auto exponent = [](double most, int emin) { return most > 0 && ilogb(most) > emin ? ilogb(most) : emin > -126 ? emin : -126; };
    int top = exponent(a.max_abs, m.a_emin) + exponent(b.max_abs, m.b_emin);
    if (exponent(bound, r.add.emin) + 1 > top) top = exponent(bound, r.add.emin) + 1;
    const int bits = top - (a.lsb + b.lsb);
    return bits < 1 ? 1 : bits <= KEPT_IN_INTEGER ? bits : -1;
}

// Steps of a matrix instruction (HARDWARE): float lanes if products and their truncated parts stay far from the ends of binary32, else
// double lanes. summation_orders.h recomputes elements that have NaN or infinite operands.
inline Choice choose_hardware(const Request& r, const Stats& a, const Stats& b) {
    const HardwareModel& m = r.hardware;
    const bool exact_lanes = m.kind == HW_FUSED || m.kind == HW_FLOORED || m.kind == HW_TWO_BLOCKS;
    const double product = a.max_abs * b.max_abs;
    Choice c = Choice::of(Path::SCALAR, 1);
    c.kept = m.kind == HW_FUSED && m.kept < 0 ? exact_bits(r, a, b) : m.kept;
    if (m.kind == HW_FLOORED && product >= ldexp(1.0, 128)) return c;
    if (m.kind == HW_FUSED && (c.kept < 0 || c.kept > KEPT_IN_TWO || (m.out >= HW_CAST && !fits(r.add, 1, true)))) return c;
    c.path = Path::LANES;
    // Products in float lanes have at most 24 bits. An int32 must represent the sum of two truncated products, of c.kept bits each.
    const bool few = (m.kind != HW_FUSED && m.kind != HW_TWO_BLOCKS) || (c.kept <= 28 && a.width + b.width <= 24);
    const bool narrow = few && product < ldexp(1.0, 90) && (a.lsb > 30000 || b.lsb > 30000 || a.lsb + b.lsb >= -90);
    c.carrier = exact_lanes && !narrow ? 1 : 0;
    return c;
}

// Whether no combination of partial sums is rounded at any level, for registers of the methods from LONG on.
// Proof: all partial sums are multiples of one power of two, 2^lsb. Every cast and the carrier represent all its multiples up to the
// bound of the sums. (Rounding a multiple of 2^lsb to a float or fixed-point format in range gives a multiple of 2^lsb.)
inline bool totals_exact(const Request& r, int carrier, const Stats& a, const Stats& b) {
    const CarrierInfo i = carrier_info(carrier);
    const bool fixed = r.method == FIXED, integer = r.method == INTEGER,
               wraps = (fixed || integer) && !r.integer.saturate && !r.integer.is_signed;
    if (a.non_finite || b.non_finite || wraps) return false;
    const bool zero = a.lsb > 30000 || b.lsb > 30000;
    const int lsb = fixed ? -r.integer.frac : integer || zero ? 0 : a.lsb + b.lsb;
    const double k = (double)r.k, one = fixed || integer ? ldexp(1.0, lsb) : 0;  // what rounding may add to a product
    const double sum = (a.row_sum * b.max_abs + k * one) * growth(r.add, k) * (1 + 1e-9);
    auto in_range = [&](const Cast& c) { return !(c.flags & (NO_ZERO | ANY_GRID)) && no_underflow(c, lsb) && sum < c.hi && -sum > c.lo; };
    if (lsb < i.emin || !(fixed || integer || in_range(r.add))) return false;
    for (int w = 0; w < r.wrapper_count; ++w) {
        const Cast& c = r.wrappers[w].cast;
        if (r.wrappers[w].order == SHUFFLED || r.wrappers[w].order == SCALED) continue;
        if (!in_range(c) || c.p > i.bits || c.emin < i.emin || c.emax > i.emax || !lemma_b(sum, lsb, c.p)) return false;
    }
    return true;
}

// Registers of integers: whether the carrier has the exact sum of any register value and any value of a fixed-point cast.
inline bool sum_is_exact(const Request& r, const Cast& c, int carrier) {
    if ((r.method != INTEGER && r.method != FIXED) || c.emin != c.emax || !isfinite(c.hi) || !isfinite(c.lo)) return false;
    const int frac = r.method == FIXED ? r.integer.frac : 0, lsb = -frac < c.emin - c.p + 1 ? -frac : c.emin - c.p + 1;
    return lsb >= carrier_info(carrier).emin &&
           fmax(c.hi, -c.lo) + ldexp(1.0, r.integer.bits - frac) <= ldexp(1.0, lsb + carrier_info(carrier).bits);
}

// Whether no partial sum is infinite: no cast that produces one turns a value below `bound` into an infinity.
inline bool totals_finite(const Request& r, const Facts& f, double bound) {
    auto below = [](const Cast& c, double most) { return (most < c.hi && -most > c.lo) || !(isinf(c.over_pos) || isinf(c.over_neg)); };
    bool all = (r.method == INTEGER || r.method == FIXED || below(r.add, bound)) && (r.fused || below(r.mul, f.product));
    for (int w = 0; w < r.wrapper_count; ++w) all = all && (r.wrappers[w].order == SHUFFLED || below(r.wrappers[w].cast, bound));
    return all;
}

// Bound of the partial sums after all levels have combined them, if the runs' partial sums together are at most `sum`.
// A partial sum that is combined in pairs passes few roundings.
inline double met(const Request& r, double sum) {
    for (int w = r.wrapper_count - 1; w >= 0; --w) {
        const Wrapper& x = r.wrappers[w];
        if (x.order == SHUFFLED) continue;
        const bool runs = x.order == CHUNKED || x.order == PAIRWISE, pairs = x.order == PAIRWISE || (x.order == INTERLEAVED && x.pairs);
        const double totals = runs ? ceil((double)r.k / (double)x.n) + 1 : (double)r.k + 1;
        const double grows = pairs ? growth(x.cast, 2 * log2(totals) + 2) : chain_growth(x.cast, totals, r.arithmetic == FP32);
        sum = (sum + (totals + 1) * least(x.cast)) * grows;
    }
    return sum;
}

// How partial sums are combined. `odd`: the exact sum is rounded to odd first. Without it the carrier's own sum is exact, or is what the
// spec means.
struct Combination {
    Combine kind;
    bool odd;
};

// `any`: the kernel must take sums that no bound of partial sums covers, as those of compensated sums.
inline Combination choose_combination(const Request& r, const Cast& c, int carrier, const Stats& a, const Stats& b, const Stats& addend,
                                      Isa::Directed directed, bool any = false) {
    const bool odd = r.arithmetic != FP32;
    if (c.mode < SR && carrier == 2 && grid_lanes(r) && wrappers_fit_grids(r)) return Combination{Combine::IRREGULAR, odd};
    if (carrier == 2 && r.method >= LONG && r.method != HARDWARE && odd) carrier = 1;  // partial sums of these are doubles
    if (carrier == 2 || c.mode > SR) return Combination{Combine::SCALAR, odd};
    if (!any && r.method >= LONG && r.method != HARDWARE && totals_exact(r, carrier, a, b)) return Combination{Combine::NATIVE, false};
    if (c.mode == SR) return Combination{fits(c, carrier, odd) ? Combine::STOCHASTIC : Combine::SCALAR, odd};
    if (is_native(c, carrier)) return Combination{Combine::NATIVE, false};
    if (!any && odd && !fits(c, carrier, odd) && fits(c, carrier, false) && sum_is_exact(r, c, carrier))
        return Combination{Combine::ANY_MODE, false};
    if (!fits(c, carrier, odd)) return Combination{Combine::SCALAR, odd};
    const CarrierInfo i = carrier_info(carrier);
    const Facts f = block_facts(r, a, b, addend);
    // An unsigned register turns a small negative sum into a large value.
    const double totals = r.method == INTEGER && !r.integer.is_signed ? fmax(f.bound, (double)r.k * ldexp(1.0, r.integer.bits)) : f.bound;
    const double bound = (met(r, totals) + least(c)) * growth(c, 1);  // includes a C that is added last
    const bool own = c.mode != RNE && odd && directed != Isa::NEAREST;
    const bool safe = !any && f.finite && totals_finite(r, f, bound) && (c.mode == RNE || own) && c.p <= i.bits - 2 &&
                      !(c.flags & NO_SUBNORMALS) && bound < c.hi && -bound > c.lo && bound < ldexp(1.0, i.emax - (i.bits - c.p + 1));
    return Combination{!safe ? Combine::ANY_MODE : own ? Combine::DIRECTED : Combine::NEAREST, odd};
}

}  // namespace gemmsim
