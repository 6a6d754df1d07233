// This file declares scaled casts: x times a scale, rounded to a value set, scaled back. Python mirrors these records
// field by field (gemmsim/backends/cpu/scaled_cast.py), and gemmsim_scaled_abi() checks their size.
#pragma once
#include <stdint.h>
#include "api.h"

namespace gemmsim {

// The source of the scale.
enum ScaledRule : int32_t {
    GIVEN_AMAX = 0,   // a tensor of amax, broadcast by strides of 0; null: no scale
    BLOCK_AMAX = 1,   // the largest magnitude of each block
    BLOCK_POWER = 2,  // amax / high of each block, rounded up to a power of two (e8m0)
    BLOCK_REAL = 3,   // amax / high of each block, under the tensor's scale, rounded to e4m3 (NVFP4)
    AFFINE_RANGE = 4  // amax and second are the ends of a range
};
enum ScaledStatus : int32_t { NEGATIVE_INPUT = 1, AMAX_NOT_FINITE = 2 };
enum Ties : int32_t { TIES_EVEN = 0, TIES_AWAY = 1, TIES_TOWARD_ZERO = 2 };

// Integers low..high, or n * 2^(max(e, emin) - trailing) up to +-high.
struct ScaledGrid {
    int32_t integer, ties, trailing, emin;
    float low, high;
};

// dst = cast(src), element by element. Blocks lie along the last dimension.
struct ScaledArgs {
    const void* src;
    void* dst;
    const float *amax, *second;  // second: bias, or the upper ends of AFFINE_RANGE; null: none
    int32_t src_dtype, dst_dtype, dims, threads;
    int32_t rule, emit_integers;
    float tensor_scale, steps;   // BLOCK_REAL: the second scale; AFFINE_RANGE: number of steps, 2^bits - 1
    int64_t block;
    ScaledGrid grid;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], dst_stride[MAX_BATCH_DIMS], amax_stride[MAX_BATCH_DIMS],
        second_stride[MAX_BATCH_DIMS];
};

// A task casts `rows` rows of `n` elements. `work` has room for scaled_work(n) bytes.
struct ScaledTask {
    const char* src;
    char *dst, *work;
    const float *amax, *second;
    int64_t n, rows;
    int64_t src_step, dst_step, amax_step, second_step;
    int64_t src_row, dst_row, amax_row, second_row;
    bool stream;
};
typedef int (*ScaledFn)(const ScaledArgs& args, const ScaledTask& task);  // returns ScaledStatus flags

constexpr int64_t scaled_work(int64_t n) { return n * 8 + 4096; }

ScaledFn scaled_cast_baseline();
ScaledFn scaled_cast_neon();
ScaledFn scaled_cast_avx2();
ScaledFn scaled_cast_avx512();

}  // namespace gemmsim

GEMMSIM_API int64_t gemmsim_scaled_abi();                          // size of ScaledArgs
GEMMSIM_API int gemmsim_scaled_cast(const gemmsim::ScaledArgs* a);  // ScaledStatus flags, or -1: out of memory
