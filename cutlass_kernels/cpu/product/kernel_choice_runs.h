// Computes how one kernel (tiles/short_runs/short_runs.h) computes the register and the innermost order, if it can: the rounding, and the
// speculation that nothing overflows. kernel_table.cpp chooses it.
#pragma once
#include "product/kernel_choice.h"

namespace gemmsim {

// The speculation of short_runs.h that nothing overflows: fills in how often partial sums are checked (`steps`) and against what bound
// (`most`). False: no bound makes it sure.
// Lemma: if every checked partial sum has |S| < most, no value leaves the format before the next check, for all data.
// Proof: checks are n = steps terms apart. Between two of them a value is the sum of at most two checked partial sums and 2n terms. Each
// of these passes at most 2n + 2 roundings: its own, those of its run and those of the combinations. A rounding adds at most a share u
// and half a quantum. Let g = (1 + u)^(2n + 2). Then two partial sums contribute less than 2 g most, which is 2/5 of the format's end.
// The terms contribute less than 1/2 of it. (Not to nearest, u and the loss below 2^emin are twice as large.)
inline bool make_runs_speculation(const Cast& add, double product, Speculation* w) {
    const int loses = add.mode == RNE ? add.p : add.p - 1;
    if (loses < 1) return false;  // registers of one bit: no number of steps is sure
    const double steps = ldexp(1.0, loses - 1), quantum = ldexp(1.0, add.flags & NO_SUBNORMALS ? add.emin : add.emin - loses + 1);
    w->steps = steps > 64 ? 64 : (int64_t)steps;
    const double n = (double)w->steps, g = exp((2 * n + 2) * ldexp(1.0, -loses)), end = fmin(add.hi, -add.lo);
    w->most = end / (5 * g);
    return 2 * n * g * 1.1 * (product + 2 * quantum) < end / 2;
}

// Whether one kernel computes the register and the innermost order in a directed mode (tiles/short_runs/short_runs_modes.cpp), if runs are
// short. Kernels of tiles take fewer instructions a step for longer runs.
inline bool runs_in_mode(const Request& r) {
    return r.fused && r.arithmetic == EXACT && (r.add.mode == RTZ || r.add.mode == RU || r.add.mode == RD) &&
           !(r.add.flags & NO_SUBNORMALS);
}
inline RunsPlan choose_directed_runs(const Request& r, RunsPlan plan, const Stats& a, const Stats& b, int carrier, int64_t longest) {
    const CarrierInfo i = carrier_info(carrier);
    const Facts f = block_facts(r, a, b, EMPTY_STATS);
    const double room = ldexp(1.0, i.emax - (i.bits - r.add.p + 1) - 8);
    if (longest > LONGEST_DIRECTED_RUN || !f.finite || !make_runs_speculation(r.add, f.product, &plan.speculation) || f.product > room / 64)
        return plan;
    plan.speculation.most = fmin(plan.speculation.most, room / 64);
    plan.eights = longest <= 2 && longest <= plan.speculation.steps;
    plan.kind = RunsRounding::DIRECTED;
    return plan;
}

// Whether and how one kernel (tiles/short_runs/short_runs.h) computes the register and the innermost order. Both must have one cast, to
// nearest even or in a directed mode. Without a proof the kernel speculates that nothing overflows. If speculation is impossible or
// fails, the same kernel with clamps computes orders to nearest even. Without an order (RunsPlan::ONE) the kernel computes a plain
// register whose other kernel would need clamps.
inline RunsPlan choose_runs(const Request& r, const Choice& c, const Stats& a, const Stats& b, Isa::Directed directed) {
    RunsPlan plan;
    plan.step = c.step;
    const bool own = c.kind == Rounding::DIRECTED || c.kind == Rounding::DIRECTED_CLAMP;
    if (r.method != REGISTER || c.path != Path::TILES || (c.kind > Rounding::FLUSH && !(own && runs_in_mode(r)))) return plan;
    const Wrapper* const w = order_of_same(r);
    int64_t longest = r.k;
    if (w) {
        plan.shape = w->order == PAIRWISE || w->pairs ? RunsPlan::PAIRS : RunsPlan::SEQUENCE;
        longest = longest_run(r, *w);
    } else if (c.kind <= Rounding::SUBNORMALS || own) return plan;  // the plain kernel is as fast
    if (own) return choose_directed_runs(r, plan, a, b, c.carrier, longest);
    // The speculative kernel of tiles (tiles/nearest/speculative.h) is faster for long runs, unless products are exact: sums of those are
    // often midpoints.
    if (w && directed == Isa::DIRECTED && c.step == FMA_ODD && c.kind <= Rounding::SUBNORMALS && longest >= SHORTEST_SPECULATIVE_RUN &&
        !c.exact_products && r.add.p + LEAST_DISCARDED <= carrier_info(c.carrier).bits)
        return RunsPlan();
    // In longer runs, more rows at a time fill the CPU registers better.
    const int64_t few = c.kind == Rounding::NATIVE ? 4 : directed == Isa::TILES && c.step == FMA_ODD ? 1 : 2;
    plan.eights = longest <= few;
    if (c.kind == Rounding::NATIVE) {
        plan.kind = RunsRounding::NATIVE;
        return plan;
    }
    const CarrierInfo i = carrier_info(c.carrier);
    const Facts f = block_facts(r, a, b, EMPTY_STATS);
    // With Isa::TILES the same holds for long runs in double lanes whose products have at least 10 bits more than the register. Few of
    // their sums are midpoints.
    if (w && directed == Isa::TILES && c.step == FMA_ODD && c.carrier == 1 && longest >= SHORTEST_WIDE_RUN &&
        f.width >= r.add.p + MANY_PRODUCT_BITS)
        return RunsPlan();
    const bool product_exact = f.width <= i.bits && f.lsb >= i.emin - i.bits + 1 && f.product < ldexp(1.0, i.emax);
    const double room = ldexp(1.0, i.emax - (i.bits - r.add.p + 1) - 8);
    const bool in_two_modes = w &&
                              longest <= (c.kind <= Rounding::SUBNORMALS ? LONGEST_RUN_IN_TWO_MODES : LONGEST_CLAMPED_RUN_IN_TWO_MODES) &&
                              c.step == FMA_ODD && directed == Isa::TILES && f.product <= room;
    // Rounding to odd by error terms (vec.h) needs exact products.
    if (directed != Isa::DIRECTED && (c.step == FMA_ODD || c.step == MA_ODD) && !product_exact && !in_two_modes) return plan;
    if ((w && 2 * r.add.p > i.bits - 1) || r.add.mode != RNE || !f.finite) return plan;
    plan.clamps = w && c.kind > Rounding::SUBNORMALS;
    if (!make_runs_speculation(r.add, f.product, &plan.speculation) || f.product > room / 64 ||
        (!r.fused && c.kind > Rounding::SUBNORMALS)) {
        if (plan.clamps) plan.kind = RunsRounding::CLAMPED;
    } else {
        plan.speculation.most = fmin(plan.speculation.most, room / 64);
        plan.eights = plan.eights && longest <= plan.speculation.steps;
        plan.kind = c.kind == Rounding::NORMAL  ? RunsRounding::NORMAL
                    : c.kind == Rounding::FLUSH ? RunsRounding::FLUSH
                                                : RunsRounding::SUBNORMALS;
    }
    // A run of one term rounds its product. If the carrier has the product exactly, no rounding to odd is needed.
    if (w && longest == 1 && plan.step == FMA_ODD && product_exact) plan.step = FMA_NEAR;
    return plan;
}

}  // namespace gemmsim
