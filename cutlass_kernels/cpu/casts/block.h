// This file declares the casts to block formats, whose elements share a scale. Python mirrors these records field by
// field (gemmsim/backends/cpu/block_records.py), and gemmsim_block_abi() checks their size.
#pragma once
#include <stdint.h>
#include "api.h"

namespace gemmsim {

// How the scale's code follows from the block's largest magnitude (ScaleRule in gemmsim/formats/block.py). LOG2_FLOOR
// and LOG2_CEIL are the rules of older systems.
enum BlockRule : int32_t { FLOOR = 0, CEIL = 1, EVEN = 2, RCEIL = 3, LOG2_FLOOR = 4, LOG2_CEIL = 5, REAL = 6 };

enum BlockFlags : int32_t {
    TWOS_COMPLEMENT = 1,        // elements are two's complement, not sign and magnitude
    NAN_BLOCK = 2,      // scale code 255 makes every element nan_code
    KEEP_INF = 4,       // an infinite amax has exponent 128 and is not NaN
    MXC = 8,            // microxcaling's rounding, and zeros without sign
    FLUSH = 16,         // microxcaling: blocks below 2^-126 become zeros
    TENSOR_SCALE = 32,  // the tensor has a second scale
    SPECIALS = 64       // the element format has NaN or infinity
};

struct BlockFormat {
    int32_t rule, flags, rounding, scale_emax;       // scale_emax: the rule subtracts it from the exponent
    int64_t block_size;
    int32_t bits, trailing, emin, top, nan_code;     // of elements; integers are multiples of 2^(emin - trailing)
    int32_t inf_code, nan_from;                      // magnitude of infinity; magnitudes from nan_from on are NaN; 256: none
    int32_t even_trailing;                           // trailing bits that rule EVEN rounds to
    float max, rule_arg;                             // largest element; RCEIL multiplies by rule_arg, LOG2_CEIL and REAL divide by it
    int32_t scale_trailing, scale_emin, scale_nan, reserved;
    float scale_low, scale_high, tensor_scale, reserved2;
    const float* encode;                             // 256 factors by scale code (not REAL)
    const float* decode;                             // 256 values of scale codes
    // By exponent + 160: the least trailing field whose rounded log2 is the next integer.
    const int32_t* log2_from;
};

enum BlockOp : int32_t { ENCODE = 0, DECODE = 1, QUANTIZE = 2 };
enum Packing : int32_t { BYTES = 0, LOW_FIRST = 1, HIGH_FIRST = 2, DENSE6 = 3 };

// Rows of k elements along the blocked dimension. `size` and the strides cover all other dimensions.
struct BlockArgs {
    const void* src;
    void *codes, *scales, *dst;
    int32_t op, packing, src_dtype, dst_dtype, dims, threads;
    int64_t k, src_step, code_step, scale_step, dst_step;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], code_stride[MAX_BATCH_DIMS], scale_stride[MAX_BATCH_DIMS],
        dst_stride[MAX_BATCH_DIMS];
    BlockFormat format;
};

// Elements first..first+count of one row. The pointers point at element `first`. `work` has room for block_work(count)
// bytes.
struct BlockTask {
    const char* src;
    uint8_t *codes, *scales;
    char *dst, *work;
    int64_t first, count;
    bool stream;
};
typedef void (*BlockFn)(const BlockArgs& args, const BlockTask& task);

constexpr int64_t block_work(int64_t count) { return count * 9 + 256; }

BlockFn block_baseline();
BlockFn block_neon();
BlockFn block_avx2();
BlockFn block_avx512();

}  // namespace gemmsim

GEMMSIM_API int64_t gemmsim_block_abi();                       // size of BlockArgs
GEMMSIM_API int gemmsim_block(const gemmsim::BlockArgs* args);  // 0 ok, -1 out of memory
