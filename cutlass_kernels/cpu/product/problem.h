// The problem that kernel choice and kernels solve for a block of outputs: an accumulator, the formats of operands and output, their data
// types and the number of terms.
#pragma once
#include "product/member.h"
#include "product/scales.h"

namespace gemmsim {

enum Arithmetic : int { EXACT = 0, FP32 = 1 };

struct Request : Member {  // init is FROM_ZERO if there is no addend
    Cast a, b, out;  // a cast without the flag PRESENT rounds nothing
    int32_t arithmetic, dtype_a, dtype_b, dtype_c;  // dtype_c: type of the addend
    int64_t k;
};

}  // namespace gemmsim
