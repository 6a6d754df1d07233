// This file declares the records and entry points of row operations. Python mirrors the records
// (gemmsim/backends/cpu/rows.py).
#pragma once
#include "api.h"
#include "rows/scalar_lane.h"

namespace gemmsim {

enum RowOp : int32_t { ROW_MAP = 0, ROW_SUM = 1, SOFTMAX = 2, LOG_SOFTMAX = 3, SOFTMAX_GRAD = 4, NORM = 5, NORM_GRAD = 6 };
enum { ROW_STEPS = 13, ROW_INPUTS = 5, ROW_OUTPUTS = 3 };

// Contiguous matrices (rows, cols) of float32 (dtype F32) or float64. Some operands are vectors of rows or of cols:
//   MAP            in: a, b (null for functions of one argument)             out: f(a, b)      function
//   SUM            in: x                                                     out: vector of rows
//   SOFTMAX        in: x                                                     out: y
//   LOG_SOFTMAX    in: x                                                     out: y
//   SOFTMAX_GRAD   in: y, g                                                  out: dx
//   NORM           in: x, weight (cols), bias (cols)                         out: y, mean (rows), 1/std (rows)
//   NORM_GRAD      in: x, weight (cols), mean (rows), 1/std (rows), g        out: dx, terms of the weight's gradient
struct RowArgs {
    const void* in[ROW_INPUTS];
    void* out[ROW_OUTPUTS];
    int64_t rows, cols;
    int32_t op, function, dtype, order, centered, threads;
    double eps;
    uint64_t seed;
    rows::Step steps[ROW_STEPS];
};

// Computes `count` rows from `first` on. `work` has room for row_work(args) bytes.
typedef void (*RowFn)(const RowArgs& args, int64_t first, int64_t count, char* work);
inline int64_t row_work(const RowArgs& a) {
    return (a.op == ROW_MAP ? 64 : (2 * (a.op >= SOFTMAX_GRAD) + 3) * (a.cols + 8)) * 8 * 8 + 4096;
}

RowFn rows_baseline();
RowFn rows_neon();
RowFn rows_avx2();
RowFn rows_avx512();

}  // namespace gemmsim

GEMMSIM_API int64_t gemmsim_rows_abi();                  // size of RowArgs
GEMMSIM_API int gemmsim_rows(const gemmsim::RowArgs* a);  // 0 ok, -1 out of memory
