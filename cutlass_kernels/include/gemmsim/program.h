// An accumulator as numbers, for kernels on every device: segments of terms, and orders around them, which determine how partial
// sums are combined. gemmsim's Python side writes the values (gemmsim/lowering/abi_constants.py).
#pragma once
#include "gemmsim/types.h"

namespace gemmsim {

// How a segment adds its terms: a plain register, a compensated sum, a long accumulator, two's complement integers, fixed point, a
// chip's matrix instruction, or registers by exponent.
enum Method : int32_t {
    REGISTER = 0,
    KAHAN = 1,
    NEUMAIER = 2,
    TWO_SUM = 3,
    FAST_TWO_SUM = 4,
    LONG = 5,
    INTEGER = 6,
    FIXED = 7,
    HARDWARE = 8,
    BINNED = 9
};

// An order around a segment, outermost first. It determines which partial sums are added when
// (docs/reference/accumulators.md#orders). SCALED: segments of n terms. Each partial sum is multiplied by the scales of the blocks
// that contain it, and the products are added in order.
// SCHEDULED: a rounding of the schedule that combines the results of the wrappers inside (schedule.h).
enum Order : int32_t { CHUNKED = 1, PAIRWISE = 2, INTERLEAVED = 3, SPLITK = 4, SHUFFLED = 5, SCALED = 6, SCHEDULED = 7 };
constexpr int MAX_WRAPPERS = 8;

// Where an addend C enters a plain register.
enum Init : int32_t { FROM_ZERO = 0, C_FIRST = 1, C_LAST = 2 };

// The two's complement register of INTEGER and FIXED segments.
struct Register {
    int32_t bits, saturate, at_end, is_signed;  // at_end: brought into range once, after an exact sum
    int32_t shift, frac;                        // INTEGER: products shifted right; FIXED: multiples of 2^-frac
};

// The step of a matrix instruction. The fields are those of gemmsim/hardware/step_parameters.py. HW_FMA is a chain of fused
// multiply-adds, which is the plain register; only the padding of K is left to do.
enum HardwareKind : int32_t { HW_NONE = 0, HW_FUSED = 1, HW_GROUPS = 2, HW_TREE = 3, HW_FLOORED = 4, HW_FMA = 5, HW_TWO_BLOCKS = 6 };
// The conversion at the end of a step. RNE23: binary32 as in IEEE 754; none of the others gives -0. HW_CAST: the cast of the
// accumulator itself. HW_CAST_INF: that cast, but in every rounding a sum past the largest finite value becomes what infinities
// become.
enum HardwareOut : int32_t { HW_RZ23 = 0, HW_E8M13 = 1, HW_RNE10 = 2, HW_RNE23 = 3, HW_CAST = 4, HW_CAST_INF = 5 };
struct HardwareModel {
    int32_t kind, products, kept, out;                // kept: bits below the largest exponent; -1: FUSED without truncation
    int32_t k;                                        // of an instruction: shorter segments are padded with zero products
    int32_t least;                                    // least exponent that addends are aligned to; LEAST_EXPONENT: none
    int32_t group;                                    // GROUPS
    int32_t total_bits, addend_bits, halves, window;  // FLOORED; window -1: none
    int32_t a_emin, b_emin;                           // exponents of the operand formats' smallest normals
    int32_t first;                                    // terms of a tile: zeros fill up a segment's first one; 0: none
};

// Exponents of products of binary32 numbers: the least that a nonzero one has, and one below all for products with a zero.
constexpr int LEAST_EXPONENT = -252, ZERO_EXPONENT = -1024;

// The index in the step of product `i` of the first (0) or the second (1) block of HW_TWO_BLOCKS: each block has two in four.
constexpr int in_block(int part, int i) { return i / 2 * 4 + i % 2 + 2 * part; }

}  // namespace gemmsim
