// Block floating point: integers of a few bits under one power of two per block. Definition: docs/reference/formats.md.
#pragma once
#include "api.h"

namespace gemmsim {

enum BlockFloatFlags : int32_t { LOWEST_CODE = 1, KEEP_INFINITY = 2 };  // the code -2^(bits-1) exists; infinities stay

// What tensors are rounded to: integers under a shared power of two; single floats; floats under a shared power of two;
// integers under a shared float.
enum BlockKind : int32_t { SHARED_EXPONENT = 0, FINITE_FLOATS = 1, SCALED_FLOATS = 2, SCALED_INTEGERS = 3 };
enum FiniteFloatFlags : int32_t { FLUSH = 1, ABSOLUTE = 2 };  // nothing below 2^emin; magnitudes alone

// Floats without codes for infinity and NaN, as a rounding.
struct FiniteFloatArgs {
    double max;  // infinity: the carrier overflows
    int32_t trailing, emin, flags, mode;
};

// Dimensions: `outer_dims` that tell blocks apart, then `inner_dims` whose elements belong together. `block` elements of the
// last one share an exponent (then there is one inner dimension), or, if it is 0, all elements of the inner dimensions.
struct BlockFloatArgs {
    const void* src;
    void* dst;
    int32_t src_dtype, dst_dtype, outer_dims, inner_dims;
    int32_t mode, rbits, site, threads;
    int32_t bits, flags;
    int64_t block;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], dst_stride[MAX_BATCH_DIMS], index_stride[MAX_BATCH_DIMS];
    uint64_t seed;
    // of the kinds other than SHARED_EXPONENT: elements (integers have `bits`, and `clamp` them), the scale, and how many
    // exponents it lies below the block's largest
    FiniteFloatArgs element, scaler;
    int32_t kind, clamp, shift, unused;
};

// Elements at equal distances, and the row-major positions that their random bits belong to.
struct BlockFloatRun {
    const char* src;
    char* dst;
    int64_t count, src_step, dst_step, index_step;
    uint64_t index;
    bool stream;
};

struct BlockFloatIsa {
    // bits of the largest finite magnitude, as a double
    uint64_t (*largest)(const BlockFloatArgs& a, const BlockFloatRun& run);
    // a run that lies inside one block whose largest finite magnitude is given
    void (*round)(const BlockFloatArgs& a, const BlockFloatRun& run, uint64_t largest);
    // a run that is cut into blocks of a.block
    void (*blocks)(const BlockFloatArgs& a, const BlockFloatRun& run);
};

// A run that is cut into blocks of a.block, of the kinds other than SHARED_EXPONENT; computed in binary32.
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
