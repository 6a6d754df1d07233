// The ordered list of rules that choose a kernel (kernel_table.h).
#include "product/kernel_table.h"
#include "product/scale_groups.h"

namespace gemmsim {

typedef const Problem& P;

// ---- events and tables -----------------------------------------------------------------------------------

static bool counts_events(P p) { return p.block.counts_events; }

// The carrier's own additions are all that the register needs, so that terms need not be stored.
static bool sums_table(P p) {
    const bool plain =
        p.r.wrapper_count == 0 && p.r.method != LONG && p.c.path == Path::TILES && p.c.kind == Rounding::NATIVE && p.c.step == FMA_NEAR;
    return p.block.from_table && plain && p.c.carrier == p.block.lanes && !p.block.counts_overflows;
}
static bool takes_terms(P p) {
    return p.block.from_table && p.r.method == REGISTER && p.r.fused && p.c.path == Path::TILES && !p.block.counts_overflows;
}

// ---- several tiles in one call ---------------------------------------------------------------------------

static bool has_float_panels(P p) { return p.block.has_panels && p.block.lanes == 0 && p.c.carrier == 0 && !p.block.scales; }

static bool in_binary16(P p) { return has_float_panels(p) && p.c.in_fp16; }

// Whether sums of a register that starts from +0 can be rounded by truncating their bits (tiles/nearest/rescaled.h).
static bool truncates_sums(P p) {
    const Cast& add = p.r.add;
    if (!has_float_panels(p) || !p.isa.multi_tile || p.r.method != REGISTER || p.r.init != FROM_ZERO || !p.r.fused) return false;
    if (p.c.path != Path::TILES || p.c.runs.kind != RunsRounding::ABSENT || !rescaling_of_panels(p.c).fits) return false;
    // Nearest sums of exact products are often midpoints, so they are excluded. arithmetic="fp32" rounds sums to nearest in every mode of
    // the register, so directed truncation excludes it.
    const bool nearest = p.isa.lowest_bits && truncates_nearest(p.r) && p.c.step == FMA_ODD &&
                         (p.c.kind == Rounding::NORMAL || p.c.kind == Rounding::SUBNORMALS) && !p.c.exact_products;
    const bool truncation = p.c.kind == Rounding::DIRECTED && p.r.arithmetic == EXACT && add.mode != RO;
    return (nearest || truncation) && add.p >= 2 && (add.flags & NEG_ZERO) && !(add.flags & NO_SUBNORMALS);
}
// Sums below 2^emin take the slow path, and so do sums on midpoints.
static bool few_slow_sums(P p, bool many_midpoints_pay) {
    const bool few_midpoints = p.r.add.mode != RNE || p.block.midpoints != Block::MANY || many_midpoints_pay;
    return p.block.several_tiles && (p.c.kind <= Rounding::NORMAL || p.block.few_small) && few_midpoints;
}
static bool rescales(P p) { return truncates_sums(p) && p.r.wrapper_count == 0; }
static bool rescaling_pays(P p) { return few_slow_sums(p, p.isa.multi_tile_checks); }

// Draws belong to the original indices of terms, which the kernel of one run does not read.
static bool rescales_runs(P p) {
    return truncates_sums(p) && p.r.wrapper_count && !p.block.counts_overflows && !(p.block.permuted && p.r.add.mode == SR);
}
static bool rescaling_runs_pays(P p) { return few_slow_sums(p, false) && shortest_run(p.r) >= SHORTEST_TRUNCATED_RUN; }

static bool adds_in_multi_tile(P p) {
    return has_float_panels(p) && p.isa.multi_tile_sums && p.r.method == REGISTER && p.r.init == FROM_ZERO && p.r.fused &&
           p.r.wrapper_count == 0 && p.c.path == Path::TILES && p.c.step == FMA_NEAR && p.c.kind <= Rounding::SUBNORMALS &&
           p.c.runs.kind == RunsRounding::ABSENT && rescaling_of_panels(p.c).fits;
}
// Copies of panels of B are rescaled where A alone cannot be.
static bool multi_tile_pays(P p) { return p.block.several_tiles && (rescaling_of_panels(p.c).b == 0 || p.r.k <= MOST_RESCALED_TERMS); }

static bool has_runs_kernel(P p) { return p.c.runs.kind != RunsRounding::ABSENT; }

// ---- one tile of a plain register ------------------------------------------------------------------------

template <Kernel K> static bool has_tile_kernel(P p) {
    return p.r.method == REGISTER && p.c.path == Path::TILES && tile_function(p.isa, K, p.c);
}

// The bits of a sum in the carrier that rounding discards.
static int discarded_bits(P p) {
    const int most = p.c.step == MA_ODD && p.r.mul.p > p.r.add.p ? p.r.mul.p : p.r.add.p;
    return carrier_info(p.c.carrier).bits - most;
}
static bool is_directed(P p) { return p.isa.directed == Isa::DIRECTED; }

static bool truncates_one(P p) {
    return has_tile_kernel<Kernel::TRUNCATED>(p) && (p.c.kind == Rounding::NORMAL || scaling(p) || is_directed(p));
}
// Sums of exact products are often on midpoints. AVX2 computes two rows of speculative.h again faster than four.
static bool truncating_pays(P p) {
    const int discarded = discarded_bits(p);
    return discarded >= LEAST_DISCARDED && (is_directed(p) || discarded >= HALF_OF_FLOAT || !p.c.exact_products);
}
// With fewer discarded bits rounding to odd by embedded rounding is faster. Other instruction sets do not have it.
static bool speculating_pays(P p) {
    return !is_directed(p) || p.c.step == FMA_NEAR || p.c.step == MA_NEAR || discarded_bits(p) >= LEAST_DISCARDED;
}
static bool is_rescaled_directed(P p) { return has_tile_kernel<Kernel::RESCALED_DIRECTED>(p) && scaling(p); }
static bool is_nearest_then_directed(P p) { return has_tile_kernel<Kernel::NEAREST_THEN_DIRECTED>(p) && p.c.nearest_sums; }
static bool is_stochastic(P p) { return has_tile_kernel<Kernel::STOCHASTIC>(p) && p.r.add.mode == SR; }
static bool is_in_halves(P p) { return has_tile_kernel<Kernel::FLOAT64_HALVES>(p) && p.r.add.p + p.r.add.rbits >= carrier_info(0).bits; }
static bool is_irregular(P p) { return p.r.method == REGISTER && p.c.path == Path::LANES; }
static bool is_scalar(P p) { return p.r.method <= FAST_TWO_SUM && p.c.path == Path::SCALAR; }

// ---- other accumulators ----------------------------------------------------------------------------------

static bool is_compensated(P p) { return p.r.method >= KAHAN && p.r.method <= FAST_TWO_SUM; }
template <int METHOD, Path PATH> static bool is(P p) { return p.r.method == METHOD && p.c.path == PATH; }
static bool is_long(P p) { return p.r.method == LONG; }
static bool is_binned(P p) { return p.r.method == BINNED; }
static bool is_integer(P p) { return p.r.method == INTEGER || p.r.method == FIXED; }
static bool sums_integers(P p) { return is_integer(p) && p.c.path == Path::TILES; }
static bool has_integer_lanes(P p) {
    return is_integer(p) && p.c.path == Path::LANES && !(p.block.counts_overflows && !(p.c.proofs & NO_OVERFLOW));
}
static bool is_block_scaled(P p) { return p.r.method == HARDWARE && p.block.scales && p.r.wrapper_count == 0; }
static bool has_scaled_lanes(P p) {
    return is_block_scaled(p) && p.block.lanes == 0 && p.c.path == Path::LANES && p.c.carrier == 0 &&
           TileGroups::fits(p.r.hardware, *p.block.scales);
}
static bool is_matrix_unit(P p) { return p.r.method == HARDWARE; }

// ---- the list --------------------------------------------------------------------------------------------

// clang-format off
const KernelRule KERNEL_RULES[KERNELS] = {
    {Kernel::COUNTING, "counting", "tiles/counting/count_events.cpp", "lanes", counts_events, nullptr, Kernel::COUNTING,
     "the product counts events", ""},
    {Kernel::TABLE_SUMS, "table sums", "product/lookup.h", "lanes", sums_table, nullptr, Kernel::TABLE_SUMS,
     "terms come from a table, and the register's steps are the carrier's own additions", "terms are not stored"},
    {Kernel::TABLE_TERMS, "table terms", "tiles/other/table_sums.cpp", "step", takes_terms, nullptr, Kernel::TABLE_TERMS,
     "terms come from a table into a plain register", "all rows of a tile take their terms at once"},
    {Kernel::BINARY16, "binary16", "tiles/nearest/binary16.cpp", "", in_binary16, nullptr, Kernel::BINARY16,
     "AVX512-FP16; register and operands are binary16", "the processor's own operation is the definition"},
    {Kernel::RESCALED, "rescaled truncation", "tiles/nearest/rescaled.h", "step", rescales, rescaling_pays, Kernel::TRUNCATED,
     "plain register from +0 in float lanes; to nearest of inexact products up to 13 bits, or directed or stochastic",
     "most rows in use, few sums below 2^emin, few midpoints"},
    {Kernel::MULTI_TILE, "multi-tile", "tiles/nearest/multi_tile.h", "step", adds_in_multi_tile, multi_tile_pays, Kernel::TRUNCATED,
     "AVX2; plain register from +0 to nearest, whose steps are float's own additions",
     "most rows in use, and B needs no rescaled copy of more than 16384 terms"},
    {Kernel::RESCALED_RUNS, "rescaled truncation of runs", "tiles/nearest/rescaled.h", "step", rescales_runs, rescaling_runs_pays, Kernel::TRUNCATED,
     "as rescaled truncation, for the runs of an order", "runs of at least 32 terms, few sums below 2^emin, few midpoints"},
    {Kernel::SHORT_RUNS, "short runs", "tiles/short_runs/short_runs.h", "step", has_runs_kernel, nullptr, Kernel::TRUNCATED,
     "one cast rounds register and innermost order (choose_runs in product/kernel_choice_runs.h)",
     "runs are short, or a kernel of one tile would need clamps"},
    {Kernel::TRUNCATED, "truncated", "tiles/nearest/truncated.h", "step", truncates_one, truncating_pays, Kernel::PLAIN,
     "float lanes to nearest, no overflow", "at least 11 discarded bits; on AVX2 with fewer than 16 of them, products that are not exact"},
    {Kernel::SPECULATIVE, "speculative", "tiles/nearest/speculative.h", "step", has_tile_kernel<Kernel::SPECULATIVE>, speculating_pays, Kernel::PLAIN,
     "to nearest; steps that round to odd or need subnormals", "on AVX-512 at least 11 discarded bits; elsewhere always"},
    {Kernel::RESCALED_DIRECTED, "rescaled directed", "tiles/directed/directed_kernel.h", "step", is_rescaled_directed, nullptr,
     Kernel::RESCALED_DIRECTED, "float lanes toward zero, and panels of A are rescaled", "subnormals need no step of their own"},
    {Kernel::NEAREST_THEN_DIRECTED, "nearest then directed", "tiles/directed/mode_switch.h", "step", is_nearest_then_directed, nullptr,
     Kernel::NEAREST_THEN_DIRECTED, "arithmetic=fp32 in another mode than nearest, on AVX2 and NEON", ""},
    {Kernel::STOCHASTIC, "stochastic", "tiles/stochastic/stochastic.h", "step", is_stochastic, nullptr, Kernel::STOCHASTIC,
     "float lanes hold significand and random bits, or all but the lowest random bits", "twice the lanes of doubles"},
    {Kernel::DIRECTED, "directed", "tiles/directed/directed_kernel.h", "step", has_tile_kernel<Kernel::DIRECTED>, nullptr, Kernel::DIRECTED,
     "finite data, one mode for all casts, by the processor's rounding directions", ""},
    {Kernel::FLOAT64_HALVES, "stochastic in float64 halves", "tiles/stochastic/stochastic.h", "step", is_in_halves, nullptr, Kernel::FLOAT64_HALVES,
     "stochastic, any data, where float lacks some of the random bits", ""},
    {Kernel::ROUND_TO_ODD, "round to odd by modes", "tiles/directed/round_to_odd.h", "step", has_tile_kernel<Kernel::ROUND_TO_ODD>, nullptr,
     Kernel::ROUND_TO_ODD, "AVX2 and NEON; any mode, any data", ""},
    {Kernel::PLAIN, "plain", "tiles/gemm_kernel.h", "step", has_tile_kernel<Kernel::PLAIN>, nullptr, Kernel::PLAIN,
     "any step and rounding that the carrier holds", ""},
    {Kernel::IRREGULAR, "irregular format", "tiles/other/irregular_format.cpp", "lanes", is_irregular, nullptr, Kernel::IRREGULAR,
     "a register that neither carrier's kernels round, with room in double lanes", ""},
    {Kernel::SCALAR, "scalar", "product/scalar.h", "", is_scalar, nullptr, Kernel::SCALAR,
     "plain registers and compensated sums of every format", ""},
    {Kernel::COMPENSATED, "compensated", "tiles/compensated/compensated.h", "step", is_compensated, nullptr, Kernel::COMPENSATED,
     "compensated sums that a carrier holds", ""},
    {Kernel::EXACT_IN_FLOAT64, "exact in float64", "tiles/gemm_kernel.h", "lanes", is<LONG, Path::TILES>, nullptr, Kernel::EXACT_IN_FLOAT64,
     "exact sums that double holds, by bound and lowest bit", ""},
    {Kernel::SLICED, "sliced", "product/sliced.h", "lanes", is<LONG, Path::LANES>, nullptr, Kernel::SLICED,
     "exact sums of finite operands that up to 4 slices hold", ""},
    {Kernel::LONG_REGISTER, "long register", "product/exact_registers.h", "", is_long, nullptr, Kernel::LONG_REGISTER, "every exact sum", ""},
    {Kernel::BINNED_FLOAT64, "binned in float64", "product/binned.h", "lanes", is<BINNED, Path::LANES>, nullptr, Kernel::BINNED_FLOAT64,
     "sums by exponent, where double has the sum of any two values of a register, and fewer than 512 exponents", ""},
    {Kernel::BINNED, "binned", "product/binned.h", "", is_binned, nullptr, Kernel::BINNED, "every sum by exponent", ""},
    {Kernel::INTEGERS_IN_CARRIER, "integers in the carrier", "tiles/gemm_kernel.h", "lanes", sums_integers, nullptr, Kernel::INTEGERS_IN_CARRIER,
     "integer and fixed-point registers that nothing leaves, whose products need no rounding", ""},
    {Kernel::INTEGER_LANES, "integer lanes", "tiles/other/integer_lanes.cpp", "lanes", has_integer_lanes, nullptr, Kernel::INTEGER_LANES,
     "integer and fixed-point registers whose sums floating-point lanes hold; overflows are not counted or cannot happen", ""},
    {Kernel::INTEGER_SCALAR, "integer scalar", "product/exact_registers.h", "", is_integer, nullptr, Kernel::INTEGER_SCALAR,
     "every integer and fixed-point register", ""},
    {Kernel::SCALED_MATRIX_UNIT, "block-scaled matrix unit", "tiles/matrix_unit/scaled_matrix_unit.cpp", "lanes", has_scaled_lanes, nullptr,
     Kernel::SCALED_MATRIX_UNIT, "block-scaled instructions of float panels with scales that fit", ""},
    {Kernel::SCALED_MATRIX_UNIT_SCALAR, "block-scaled matrix unit, scalar", "product/hardware_model.h", "", is_block_scaled, nullptr,
     Kernel::SCALED_MATRIX_UNIT_SCALAR, "every block-scaled instruction", ""},
    {Kernel::MATRIX_UNIT, "matrix unit", "tiles/matrix_unit/matrix_unit.cpp", "lanes", is<HARDWARE, Path::LANES>, nullptr, Kernel::MATRIX_UNIT,
     "instructions whose products and truncated parts lanes hold; elements with NaN or infinity are computed again", ""},
    {Kernel::MATRIX_UNIT_SCALAR, "matrix unit, scalar", "product/hardware_model.h", "", is_matrix_unit, nullptr, Kernel::MATRIX_UNIT_SCALAR,
     "every instruction", ""},
    {Kernel::PALETTE, "palette", "tiles/other/palette_kernel.h", "step", [](P) { return false; }, nullptr, Kernel::PALETTE,
     "elements whose accumulators differ, several members in one pass (product/palette_runner.h)", ""},
};
// clang-format on

Kernel choose_kernel(P p, Kernel from) {
    for (int i = (int)from; i < KERNELS; ++i) {
        const KernelRule& rule = KERNEL_RULES[i];
        if (rule.possible(p) && (!rule.pays || rule.pays(p))) return rule.kernel;
    }
    return Kernel::SCALAR;  // of a palette's member: all other accumulators have a rule that always holds
}

}  // namespace gemmsim
