// A matrix product: what is known when its kernel is compiled, and what is known when it is launched.
// gemmsim/backends/cuda/simt/gemm_source.py and gemm_args.py write these records.
#pragma once
#include "gemmsim/device/codes.h"
#include "gemmsim/program.h"

namespace gemmsim {

constexpr int BATCH_DIMS = 16;

struct Wrapper {
    int32_t order, pairs;  // pairs: lanes are combined pairwise instead of in sequence
    Cast cast;             // rounding of each combination (SPLITK: of each total, too)
};

// How an operand lies in memory: any strides; or in the direction of terms (or of lines: A's rows, B's columns) without gaps,
// every vector of 16 bytes aligned and either wholly inside the matrix or wholly outside.
enum Layout : int32_t { ANY_STRIDES = 0, TERMS_CONTIGUOUS = 1, LINES_CONTIGUOUS = 2 };

// Scales of an operand in a block format: codes beside those of its elements, which are decoded without them.
struct ScaleSide {
    int32_t present, powers, tensor;  // powers: e8m0; tensor: one more scale for the whole operand
    CodeFormat code;                  // of other scales
};

// What follows the product: its result in `work` (F32 or F64), to which a bias is added there, cast, in the output's dtype.
struct Finish {
    int32_t present, biased;
    DType work, bias;
    Cast cast;  // flags without PRESENT: no rounding there
};

// Operands of dtype I16 are codes of their formats, and every product is an entry of a table: the row of A's code, the column of
// B's. cast_a and cast_b are those of 1 and of the entries.
struct ProductTable {
    int32_t columns, entries;  // columns 0: there is no table
    DType dtype;               // of the entries
    int32_t shared;            // each block copies them into its shared memory
};

// Every addition of the kernel is looked at beside its value, and four counts for each output are added to (count_events.h).
struct Watch {
    int32_t present;
    double least[1 + MAX_WRAPPERS];  // the smallest normal of the register's format, then of each wrapper's cast
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
    Cast cast_a, cast_b, mul, add, cast_out;  // flags without PRESENT: no rounding there
    int32_t done_a, done_b;                   // the operand holds results of its cast already
    int32_t layout_a, layout_b;               // Layout
    int32_t fused, fp32;                      // fp32: steps are rounded to binary32 before the casts
    int32_t packed;                           // two outputs an instruction (packed_run.h)
    int32_t method, carrier;                  // carrier: 0 float, 1 double, 2 integers of 128 bits
    int32_t rows, cols;                       // outputs of a thread: 1, 2, 4 or 8 each way
    int32_t down, across;                     // threads of a block
    int32_t depth;                            // terms of a chunk in shared memory
    int32_t loaders, stages;                  // further threads, which load; chunks on their way to them (pipelined_panel.h)
    int32_t copied;                           // operands lie in shared memory as they do in global memory (async_panel.h)
    int32_t init, select, permuted;           // Init; whether elements are selected; whether terms are permuted
    int32_t levels;
    Wrapper wrapper[MAX_WRAPPERS];
    Register reg;
    HardwareModel hardware;
    int32_t count;  // how often INTEGER and FIXED registers leave their range is added to the output (int64) instead
    CodeFormat code_a, code_b;  // of operands of dtype CODES, whose cast is that to their format and done
    ScaleSide scale_a, scale_b;
    Finish finish;
    int32_t gathered;  // A is read, and the output written, through tables of offsets (implicit_im2col.h); batches are groups
    ProductTable table;
    Watch watch;
    int32_t split;  // SplitOf (split_k.h)
};

// Strides in elements. gemmsim/backends/cuda/simt/gemm_args.py mirrors this record.
struct GemmArgs {
    const void *a, *b;
    union {
        const void* c;         // the addend
        const void* products;  // entries of a table, row by row; there is no addend then
    };
    void* out;
    union {
        const uint8_t* select;  // one member's index for each output
        int64_t* events;        // of a watched product: (EVENTS, batches, m, n) without gaps; it selects nothing
    };
    const int32_t *term, *key;  // place of the term at each position; the k its random bits belong to (null: the position)
    int64_t m, n, k, batches;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col, out_row, out_col, select_row, select_col;
    uint64_t seed, row;  // row: of the first row among those that random bits are drawn for
    int32_t dims, member;
    int64_t size[MAX_WRAPPERS];  // n of each wrapper
    int64_t batch[BATCH_DIMS], a_batch[BATCH_DIMS], b_batch[BATCH_DIMS], c_batch[BATCH_DIMS], out_batch[BATCH_DIMS],
        select_batch[BATCH_DIMS];
    // Scales: codes, terms in a block, strides; the tensors' own
    const uint8_t *scale_a, *scale_b;
    const float *second_a, *second_b;
    int64_t block_a, block_b, scale_a_row, scale_a_block, scale_b_block, scale_b_col;
    int64_t scale_a_batch[BATCH_DIMS], scale_b_batch[BATCH_DIMS];
    const void* bias;  // a number for each column
    int64_t bias_col, bias_batch[BATCH_DIMS];
    // Of a gathered product: row m is row m % inner of image m / inner. Offsets of A's rows in an image and of its columns;
    // from image to image in A and in the output.
    const int64_t *rows, *cols;
    int64_t inner, a_outer, out_outer;
    // Of a product whose K is split: a total for each run and output, (runs, batches, m, n) without gaps; slices of so many runs.
    // Where its sum is exact: a part of each slice and output, slices of so many terms.
    void* totals;
    int64_t slices, slice;
};

constexpr int gemm_threads(const GemmConfig& k) { return k.down * k.across + k.loaders; }
// Terms that a run reads ahead of their use.
constexpr int gemm_ahead(const GemmConfig& k) { return k.rows * k.cols < 16 ? 4 : 1; }

}  // namespace gemmsim
