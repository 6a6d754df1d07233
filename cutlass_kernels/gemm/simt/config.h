// The configuration of a matrix product on ordinary arithmetic units (simt.h). GemmConfig is known when a kernel is compiled, and
// GemmArgs when it is launched. gemmsim/backends/cuda/simt/gemm_source.py and gemm_args.py write these records.
#pragma once
#include "gemmsim/device/codes.h"
#include "gemmsim/program.h"
#include "gemmsim/schedule.h"

namespace gemmsim {

constexpr int BATCH_DIMS = 16;

struct Wrapper {
    int32_t order, pairs;  // pairs: interleaved sums are combined pairwise instead of in sequence
    Cast cast;             // rounding of each combination; SPLITK also rounds each partial sum by it
};

// The layout of an operand in memory. ANY_STRIDES has no condition. Otherwise the operand has no gaps in the direction of terms, or in
// that of lines (rows of A, columns of B). Every vector of 16 bytes is then aligned and lies wholly inside or outside the matrix.
enum Layout : int32_t { ANY_STRIDES = 0, TERMS_CONTIGUOUS = 1, LINES_CONTIGUOUS = 2 };

// The scales of an operand in a block format. Their codes are stored apart from those of the elements, and elements are decoded without
// them.
struct ScaleSide {
    int32_t present, powers, tensor;  // powers: the scales are e8m0; tensor: the whole operand has one more scale
    CodeFormat code;                  // format of scales that are not e8m0
};

// The part of the epilogue that follows the output cast (epilogue.h). It converts the result to `work` (F32 or F64) and adds the bias
// in that type. It then casts the sum and converts it to the output's dtype.
struct Finish {
    int32_t present, biased;
    DType work, bias;
    Cast cast;  // flags without PRESENT: no rounding
};

// The table of a product whose terms are looked up. Operands have dtype I16 and are codes of their formats. A term is the entry in the
// row of A's code and the column of B's. cast_a and cast_b are then the casts of the factor 1 and of the entries.
struct ProductTable {
    int32_t columns, entries;  // columns 0: there is no table
    DType dtype;               // dtype of the entries
    int32_t shared;            // each block copies them into its shared memory
};

// With `present`, the kernel checks every addition for events and adds to four counters of each output (count_events.h).
struct CountedEvents {
    int32_t present;
    double least[1 + MAX_WRAPPERS];  // smallest normal of the register's format, then of each wrapper's cast
};

constexpr DType I16 = (DType)5, I32 = (DType)6;
template <> struct Storage<I16> {
    typedef short Word;
};
template <> struct Storage<I32> {
    typedef int32_t Word;
};

struct GemmConfig {
    DType a, b, c, out;
    Cast cast_a, cast_b, mul, add, cast_out;  // flags without PRESENT: no rounding
    int32_t done_a, done_b;                   // the operand has results of its cast already
    int32_t layout_a, layout_b;               // Layout
    int32_t fused, fp32;                      // fp32: operations are rounded to binary32 before the casts
    int32_t packed;                           // an instruction computes two outputs (packed_run.h)
    int32_t method, carrier;                  // carrier: 0 float, 1 double, 2 integers of 128 bits
    int32_t rows, cols;                       // outputs of a thread in each direction: 1, 2, 4, 8 or 16
    int32_t down, across;                     // threads of a block that compute, in each direction
    int32_t depth;                            // terms of a chunk in shared memory
    int32_t loaders, stages;                  // more threads, which only load; chunks in flight to them (pipelined_panel.h)
    int32_t copied;                           // operands have the same layout in shared as in global memory (async_panel.h)
    int32_t init, select, permuted;           // Init; whether a palette selects elements; whether terms are permuted
    int32_t levels;
    Wrapper wrapper[MAX_WRAPPERS];
    Register reg;
    HardwareModel hardware;
    int32_t count;  // adds to the output (int64) how often INTEGER and FIXED registers overflow, and writes no result
    CodeFormat code_a, code_b;  // formats of operands of dtype CODES; their casts are those to these formats, and done
    ScaleSide scale_a, scale_b;
    Finish finish;
    int32_t gathered;  // A is read and the output written through tables of offsets (implicit_im2col.h); a batch is a group
    ProductTable table;
    CountedEvents counted;
    int32_t split;  // SplitOf (split_k.h)
    int32_t schedule, schedule_levels;  // the most partial sums on a schedule's stack, and its levels of random bits; 0: no schedule
};

// Strides are in elements. gemmsim/backends/cuda/simt/gemm_args.py mirrors this record.
struct GemmArgs {
    const void *a, *b;
    union {
        const void* c;         // the addend
        const void* products;  // entries of a table, row by row; such a product has no addend
    };
    void* out;
    union {
        const uint8_t* select;  // the index of a palette's member for each output
        int64_t* events;        // counters of events: (EVENTS, batches, m, n) without gaps; such a product has no palette
    };
    const int32_t *term, *key;  // for each position: index of its term; the k that keys its random bits (null: the position)
    int64_t m, n, k, batches;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col, out_row, out_col, select_row, select_col;
    uint64_t seed, row;  // row: index of the first row, as random bits count rows
    int32_t dims, member;
    int64_t size[MAX_WRAPPERS];  // the parameter n of each wrapper
    int64_t batch[BATCH_DIMS], a_batch[BATCH_DIMS], b_batch[BATCH_DIMS], c_batch[BATCH_DIMS], out_batch[BATCH_DIMS],
        select_batch[BATCH_DIMS];
    // Scales of block formats: codes, the tensors' own scales, the number of terms of a block, and strides.
    const uint8_t *scale_a, *scale_b;
    const float *second_a, *second_b;
    int64_t block_a, block_b, scale_a_row, scale_a_block, scale_b_block, scale_b_col;
    int64_t scale_a_batch[BATCH_DIMS], scale_b_batch[BATCH_DIMS];
    const void* bias;  // one number for each column
    int64_t bias_col, bias_batch[BATCH_DIMS];
    // For a `gathered` product. Row m of A is row m % inner of image m / inner. `rows` and `cols` are the offsets of A's rows in an image
    // and of its columns. `a_outer` and `out_outer` are the strides from image to image in A and in the output.
    const int64_t *rows, *cols;
    int64_t inner, a_outer, out_outer;
    // For split-K. `totals` has a partial sum for each run and output, (runs, batches, m, n) without gaps, and a slice is `slice` runs.
    // Where the sum is exact, `totals` has a part for each slice and output, and a slice is `slice` terms.
    void* totals;
    int64_t slices, slice;
    const ScheduleOp* schedule;  // operations of the schedule, and their number
    int64_t schedule_count;
};

// The levels of random bits around a level of wrappers. A permutation combines nothing and has none.
constexpr int random_levels(const GemmConfig& k, int level) {
    int found = k.schedule_levels;
    for (int w = 0; w < level; ++w) found += k.wrapper[w].order != SHUFFLED && k.wrapper[w].order != SCHEDULED ? 1 : 0;
    return found;
}

constexpr int gemm_threads(const GemmConfig& k) { return k.down * k.across + k.loaders; }
// The number of terms whose factors a run reads before it uses them.
constexpr int gemm_ahead(const GemmConfig& k) { return k.rows * k.cols < 16 ? 4 : 1; }

}  // namespace gemmsim
