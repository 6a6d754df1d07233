// The numbers that decide which CPU kernel pays, each with the benchmark that measures it. Results have the same bits whatever these
// numbers are; bounds of proofs say so.
// To measure one again, change it, build, and run its benchmark on the old and the new library in turn.
#pragma once
#include <stdint.h>

namespace gemmsim {

// ---- registers to nearest --------------------------------------------------------------------------------

// The fewest discarded bits for which kernels speculate on AVX-512: random sums are on a midpoint once in 2^(discarded bits). With fewer
// bits rounding to odd by embedded rounding is faster. benchmarks/gemm.py, registers of 9 to 16 bits.
constexpr int LEAST_DISCARDED = 11;

// From this many discarded bits on, AVX2 truncates sums of exact products, too; such sums are often on midpoints. Half of a float: a
// midpoint plus half of the last place then has zeros in its lower 16 bits, one comparison. benchmarks/gemm.py, bf16 operands.
constexpr int HALF_OF_FLOAT = 16;

// The most bits of a format to which two instructions round floats, and doubles. Bounds of a proof (tiles/nearest/checks.h).
constexpr int SHORT_BITS_OF_FLOATS = 11, SHORT_BITS_OF_DOUBLES = 25;

// ---- truncated sums of rescaled panels -------------------------------------------------------------------

// Runs of at least this many terms may have truncated sums, tile by tile. benchmarks/accumulators.py, chunked(16 to 128).
constexpr int64_t SHORTEST_TRUNCATED_RUN = 32;

// The most vectors with a sum below 2^emin in a tile's step, by estimate, for which kernels truncate registers with subnormals.
// benchmarks/gemm.py, operands scaled from 1 down to 2^-10.
constexpr double FEW_SMALL_VECTORS = 0.1;

// The lowest bits of terms are compared where at most one term in so many may lead to a midpoint, in products of at least so many rows of
// A, whose operands have more than so many bits. benchmarks/gemm.py, bf16, fp16 and float32 operands of 8 to 64 rows.
constexpr int64_t RARE_MIDPOINTS = 8;
constexpr int64_t LEAST_ROWS_FOR_LOWEST_BITS = 24;
constexpr int MOST_BITS_WITH_MIDPOINTS = 11;

// The most terms of a panel of B that is copied to be rescaled: copy and panel stay in the second-level cache. benchmarks/gemm.py, K of
// 4096 to 65536.
constexpr int64_t MOST_RESCALED_TERMS = 1 << 14;

// Panels of B that one call of a kernel of several tiles takes: one where the register is the carrier's own and a panel has more terms than
// this. It reads an element of B every other cycle, so that B must be in the first-level cache. benchmarks/gemm.py, :fp32.
constexpr int64_t MOST_TERMS_OF_TWO_PANELS = 128;

// ---- runs of an order ------------------------------------------------------------------------------------

// Runs of so many terms are faster one by one in a kernel of tiles, which has fewer instructions a step: steps to odd of inexact products
// on AVX-512 (SPECULATIVE), and in double lanes by modes, of products with at least 10 bits more than the register (WIDE).
// benchmarks/accumulators.py, chunked(8 to 64).
constexpr int64_t SHORTEST_SPECULATIVE_RUN = 32, SHORTEST_WIDE_RUN = 24;
constexpr int MANY_PRODUCT_BITS = 10;

// The longest runs in a directed mode that one kernel computes with their combinations. benchmarks/accumulators.py, chunked(1 to 16)/rtz.
constexpr int64_t LONGEST_DIRECTED_RUN = 6;

// The longest runs that AVX2 and NEON compute in two rounding modes of the processor: without clamps, and with. The same benchmark.
constexpr int64_t LONGEST_RUN_IN_TWO_MODES = 6, LONGEST_CLAMPED_RUN_IN_TWO_MODES = 12;

// ---- counted events --------------------------------------------------------------------------------------

// The longest runs whose pairs one kernel counts: in longer runs few sums are combined. benchmarks/events.py, pairwise(1 to 64).
constexpr int64_t LONGEST_COUNTED_PAIRS = 16;

// ---- matrix units ----------------------------------------------------------------------------------------

// Up to so many rows of A do not repay storing the exponent fields of B. benchmarks/accumulators.py, instructions at 8 to 64 rows.
constexpr int64_t MOST_ROWS_WITHOUT_FIELDS = 16;

// A step of a matrix unit sums up to 64 products and the register, each truncated a number of bits below the largest.
// For up to these numbers of bits the sum fits a double, two doubles, or 128-bit integers. Bounds of a proof.
constexpr int KEPT_IN_DOUBLE = 44, KEPT_IN_TWO = 90, KEPT_IN_INTEGER = 117;

// ---- a whole product -------------------------------------------------------------------------------------

// Kernels of several tiles are used where this share of the rows of a block is in use (7 of 8).
constexpr int64_t ROWS_IN_USE = 7, OF_ROWS = 8;

// Bytes of packed A that a block of rows has at most: half of a second-level cache. benchmarks/gemm.py, M of 64 to 4096.
constexpr int64_t BLOCK_BYTES = 1 << 19;

// Panels of all terms are too large above this number of bytes where they are also this many times the operands. benchmarks/gemm.py,
// K of 2^18 to 2^22 with 1 to 8 rows.
constexpr double MOST_PANEL_BYTES = 8 << 20, PANELS_PER_OPERANDS = 2;

// Rows of B ahead of the packed one that are prefetched. benchmarks/libraries.py, one row times 4096 x 1024.
constexpr int64_t PREFETCHED_ROWS = 32;

// Panels of this many bytes are packed a part at a time if they are used once, by one block of rows. benchmarks/libraries.py, the same.
constexpr double LEAST_BYTES_USED_ONCE = 1 << 20;

// Multiply-adds below which one thread computes a product, and below which a thread takes whole products of a batch. benchmarks/gemm.py,
// small products and batches.
constexpr double LEAST_THREADED_WORK = 65536, MOST_WORK_OF_A_BATCH = 4e6;

}  // namespace gemmsim
