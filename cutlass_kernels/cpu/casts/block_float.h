// This file declares the rounding to block floating point: integers of a few bits under one power of two per block.
// docs/reference/formats.md defines these formats.
#pragma once
#include "api.h"

namespace gemmsim {

enum BlockFloatFlags : int32_t { LOWEST_CODE = 1, KEEP_INFINITY = 2 };  // the code -2^(bits-1) exists; infinities stay

// The target of the rounding: integers under a shared power of two; single floats; floats under a shared power of two;
// integers under a shared float.
enum BlockKind : int32_t { SHARED_EXPONENT = 0, FINITE_FLOATS = 1, SCALED_FLOATS = 2, SCALED_INTEGERS = 3 };
// FLUSH: magnitudes below 2^emin become zero. ABSOLUTE: results lose their signs.
enum FiniteFloatFlags : int32_t { FLUSH = 1, ABSOLUTE = 2 };

// A rounding to floats that have no codes for infinity and NaN.
struct FiniteFloatArgs {
    double max;  // infinity: the carrier's own overflow applies
    int32_t trailing, emin, flags, mode;
};

// The first `outer_dims` dimensions distinguish blocks. The elements of the following `inner_dims` belong together.
// `block` elements of the last dimension share an exponent; there is then one inner dimension. If `block` is 0, all
// elements of the inner dimensions share an exponent.
struct BlockFloatArgs {
    const void* src;
    void* dst;
    int32_t src_dtype, dst_dtype, outer_dims, inner_dims;
    int32_t mode, rbits, site, threads;
    int32_t bits, flags;
    int64_t block;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], dst_stride[MAX_BATCH_DIMS], index_stride[MAX_BATCH_DIMS];
    uint64_t seed;
    // These fields belong to the kinds other than SHARED_EXPONENT. `element` and `scaler` are the roundings of elements
    // and of the scale. Integer elements have `bits`, and `clamp` says whether they saturate. The scale's exponent is
    // `shift` below that of the block's largest element.
    FiniteFloatArgs element, scaler;
    int32_t kind, clamp, shift, unused;
};

// Equidistant elements, and the row-major positions of their random bits.
struct BlockFloatRun {
    const char* src;
    char* dst;
    int64_t count, src_step, dst_step, index_step;
    uint64_t index;
    bool stream;
};

struct BlockFloatIsa {
    // Bits of the largest finite magnitude, as a double.
    uint64_t (*largest)(const BlockFloatArgs& a, const BlockFloatRun& run);
    // Rounds a run that lies inside one block with the given largest finite magnitude.
    void (*round)(const BlockFloatArgs& a, const BlockFloatRun& run, uint64_t largest);
    // Rounds a run that consists of blocks of a.block elements.
    void (*blocks)(const BlockFloatArgs& a, const BlockFloatRun& run);
};

// Rounds a run that consists of blocks of a.block elements, for the kinds other than SHARED_EXPONENT, in binary32.
typedef void (*ScaledBlocks)(const BlockFloatArgs& a, const BlockFloatRun& run);

ScaledBlocks scaled_blocks_baseline();
ScaledBlocks scaled_blocks_neon();
ScaledBlocks scaled_blocks_avx2();
ScaledBlocks scaled_blocks_avx512();
const BlockFloatIsa* block_float_baseline();
const BlockFloatIsa* block_float_neon();
const BlockFloatIsa* block_float_avx2();
const BlockFloatIsa* block_float_avx512();

}  // namespace gemmsim

GEMMSIM_API int64_t gemmsim_block_float_abi();                            // size of BlockFloatArgs
GEMMSIM_API int gemmsim_block_float(const gemmsim::BlockFloatArgs* args);  // 0 ok, -1 out of memory
