// The kernels that compute the terms of a product, in the order in which product/kernel_table.h considers them.
#pragma once
#include <stdint.h>

namespace gemmsim {

enum class Kernel : uint8_t {
    // Products that count events or look their terms up in a table.
    COUNTING,
    TABLE_SUMS,
    TABLE_TERMS,
    // Plain registers: several tiles in one call, then runs of the innermost order together with their combinations.
    BINARY16,
    RESCALED,
    MULTI_TILE,
    RESCALED_RUNS,
    SHORT_RUNS,
    // Plain registers, one tile in a call (Isa::tile has these functions by lanes, step and rounding).
    TRUNCATED,
    SPECULATIVE,
    RESCALED_DIRECTED,
    NEAREST_THEN_DIRECTED,
    STOCHASTIC,
    DIRECTED,
    FLOAT64_HALVES,
    ROUND_TO_ODD,
    PLAIN,
    IRREGULAR,
    // Plain registers and compensated sums, one element at a time.
    SCALAR,
    // Other accumulators.
    COMPENSATED,
    EXACT_IN_FLOAT64,
    SLICED,
    LONG_REGISTER,
    BINNED_FLOAT64,
    BINNED,
    INTEGERS_IN_CARRIER,
    INTEGER_LANES,
    INTEGER_SCALAR,
    SCALED_MATRIX_UNIT,
    SCALED_MATRIX_UNIT_SCALAR,
    MATRIX_UNIT,
    MATRIX_UNIT_SCALAR,
    // Elements whose accumulators differ.
    PALETTE,
    COUNT
};

constexpr int KERNELS = (int)Kernel::COUNT;

// The kernels of Isa::tile, and the place of one of them there.
constexpr Kernel FIRST_TILE_KERNEL = Kernel::TRUNCATED, LAST_TILE_KERNEL = Kernel::PLAIN;
constexpr int TILE_KERNELS = (int)LAST_TILE_KERNEL - (int)FIRST_TILE_KERNEL + 1;
constexpr bool is_tile_kernel(Kernel k) { return k >= FIRST_TILE_KERNEL && k <= LAST_TILE_KERNEL; }
constexpr int tile_place(Kernel k) { return (int)k - (int)FIRST_TILE_KERNEL; }

}  // namespace gemmsim
