// Chooses the kernel of a compensated sum (tiles/compensated/compensated.h), by proof or by speculation that nothing overflows.
#pragma once
#include "product/kernel_choice.h"

namespace gemmsim {

// Fills in how often S is checked (`steps`) and against what bound (`most`). False: terms are too large for speculation.
// Lemma: if every check, `steps` terms apart, finds |S| < most, no value leaves the format between checks, for all data.
// Proof: every operation loses at most a share u of its result. A step has at most eight operations in a row. No intermediate is more
// than four times the largest of S and the terms. Let g = (1 + u)^(8 steps). Then S contributes at most 4 g most, a quarter of the
// format's end. The terms between two checks contribute less than half of it. (Not to nearest, u and the loss below 2^emin are twice as
// large.)
inline bool make_speculation(const Cast& add, double product, Speculation* w) {
    const int loses = add.mode == RNE ? add.p : add.p - 1;
    const double steps = ldexp(1.0, loses - 3), quantum = ldexp(1.0, add.emin - loses + 1);
    w->steps = steps < 1 ? 1 : steps > 64 ? 64 : (int64_t)steps;
    const double g = exp(8 * ldexp(1.0, -loses) * (double)w->steps), end = fmin(add.hi, -add.lo);
    w->most = end / (16 * g);
    return 4 * g * 1.1 * (double)w->steps * (product + 4 * quantum) < end / 2;
}

// Whether an overflow becomes what an infinity becomes. In RD at the positive end, and in RU at the negative end, the two may differ:
// the kernels of these modes distinguish them there.
inline bool same_ends(const Cast& c) {
    auto same = [](double over, double inf) { return over == inf || (over != over && inf != inf); };
    return (same(c.over_pos, c.inf_pos) || c.mode == RD) && (same(c.over_neg, c.inf_neg) || c.mode == RU);
}

// Whether a condition holds for all casts of a compensated sum.
template <class F> inline bool of_all(const Request& r, F holds) { return holds(r.add) && (r.fused || holds(r.mul)); }

// Whether kernels may clamp values to a cast's range before its rounding. If no overflow is infinite, casts of finite data get no
// infinities. Otherwise one cast's overflow is another's infinity, so infinities must become what overflows become.
inline bool may_clamp(const Request& r) {
    return of_all(r, [](const Cast& c) { return !std::isinf(c.over_pos) && !std::isinf(c.over_neg); }) || of_all(r, same_ends);
}

// Whether kernels with clamps compute a compensated sum to nearest even with every policy of overflow, for finite data: in the carrier's
// lanes, in double lanes for float panels, or not at all.
enum class Clamped { NO, IN_CARRIER, IN_DOUBLES };
inline Clamped nearest_compensated(const Request& r, int carrier) {
    // The lanes must satisfy lemma A, and represent twice a value of the format times the factor that splits it.
    auto in = [&](int lanes) {
        const CarrierInfo i = carrier_info(lanes);
        return of_all(r, [&](const Cast& c) { return 2 * c.p <= i.bits - 1 && c.emax + 1 + i.bits - c.p <= i.emax; });
    };
    if (!may_clamp(r) || !of_all(r, [](const Cast& c) { return c.mode == RNE; })) return Clamped::NO;
    return in(carrier) ? Clamped::IN_CARRIER : carrier == 0 && in(1) ? Clamped::IN_DOUBLES : Clamped::NO;
}

// The same question for one other mode (DIRECTED_CLAMP).
inline bool clamped_in_mode(const Request& r, int carrier) {
    const CarrierInfo i = carrier_info(carrier);
    return may_clamp(r) && of_all(r, [&](const Cast& c) {
               const bool reaches = c.emax + 1 + i.bits - c.p + 1 <= i.emax, low = !(c.flags & NO_SUBNORMALS) || c.emin + i.bits <= i.emax;
               return reaches && low && c.p + (c.mode == SR ? c.rbits : 1) <= i.bits - 1;
           });
}

// Chooses the kernel of compensated runs. One kind does all roundings. SUBNORMALS and DIRECTED are speculative (tiles/compensated/compensated.h).
inline Choice choose_compensated(const Request& r, const Stats& a, const Stats& b, int carrier, Isa::Directed directed) {
    const int bits_add = draws(r.add), bits_mul = r.fused ? 0 : draws(r.mul);
    const bool random = bits_add || bits_mul, beyond = r.add.mode > SR || (!r.fused && r.mul.mode > SR);
    if (carrier == 2 || beyond || (random && (directed == Isa::NEAREST || (bits_add && bits_mul && bits_add != bits_mul))))
        return Choice::of(Path::SCALAR, carrier == 2 ? 1 : carrier);
    if (native(r, carrier)) return Choice{carrier, r.fused ? FMA_NEAR : MA_NEAR, Rounding::NATIVE, 0};
    const CarrierInfo i = carrier_info(carrier);
    const Facts f = block_facts(r, a, b, EMPTY_STATS);
    const bool odd = r.arithmetic != FP32, in_range = f.lsb >= i.emin - i.bits + 1 && f.product < ldexp(1.0, i.emax);
    const bool float64_lanes = carrier == 0 && directed == Isa::TILES && speculative_terms(r),
               product_exact = in_range && f.width <= i.bits;
    const bool own = directed != Isa::NEAREST && compensated_mode(r.add) && (r.fused || (r.mul.mode == r.add.mode && bits_mul == bits_add));
    const bool clamped = odd && own && f.finite && clamped_in_mode(r, carrier);
    const Clamped nearest = odd && !random && f.finite && directed != Isa::NEAREST ? nearest_compensated(r, carrier) : Clamped::NO;
    if (odd && directed != Isa::DIRECTED && !float64_lanes && !product_exact && !clamped && nearest == Clamped::NO)
        return Choice::of(Path::SCALAR, carrier);
    Choice c = {carrier, (r.fused ? (odd ? FMA_ODD : FMA_NEAR) : (odd ? MA_ODD : MA_NEAR)), Rounding::ANY_MODE, f.finite ? FINITE : 0};
    // Sums of exact products are often midpoints, unless products have at least 10 bits more than the register.
    c.exact_products = product_exact && f.width < r.add.p + 10;
    const auto all_by = [&c](Rounding kind, bool wide) {
        c.kind = kind;
        c.wide = wide;
        c.fallback = {kind, wide};
    };
    if (random) all_by(Rounding::STOCHASTIC, false);
    else if (float64_lanes && !product_exact) all_by(Rounding::ANY_MODE, true);
    const int mode = own ? r.add.mode : (int)RNE;
    auto simple = [&](const Cast& q) {
        return q.mode == mode && q.p + (mode == SR ? q.rbits : 1) <= i.bits - 1 && !(q.flags & NO_SUBNORMALS);
    };
    if (clamped) all_by(Rounding::DIRECTED_CLAMP, false);
    else if (nearest != Clamped::NO) all_by(Rounding::FLUSH, nearest == Clamped::IN_DOUBLES);
    const int bits_below = i.bits - r.add.p + 1;
    if (!odd || !f.finite || !simple(r.add) || (!own && 2 * r.add.p > i.bits - 1) || !make_speculation(r.add, f.product, &c.speculation))
        return c;
    // The carrier needs room above the format's end for sums that grow past it before the next check.
    const double room = ldexp(1.0, i.emax - bits_below - 8);
    if (r.add.hi > room) c.speculation.most = fmin(c.speculation.most, room / 64);
    if (f.product > room / 64) return c;
    if (!r.fused) {
        const bool inside = f.product < r.mul.hi && -f.product > r.mul.lo && f.product < ldexp(1.0, i.emax - (i.bits - r.mul.p + 1));
        if (!simple(r.mul) || !inside) return c;
    }
    c.kind = own ? Rounding::DIRECTED : Rounding::SUBNORMALS;
    c.wide = false;
    return c;
}

}  // namespace gemmsim
