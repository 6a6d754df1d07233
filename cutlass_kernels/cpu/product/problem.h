// What is asked of a block of outputs: an accumulator's member, formats of operands and output, types, the number of terms.
#pragma once
#include "product/member.h"
#include "product/scales.h"

namespace gemmsim {

enum Arithmetic : int { EXACT = 0, FP32 = 1 };

struct Request : Member {  // init is FROM_ZERO where no addend is given
    Cast a, b, out;  // flags without PRESENT: no rounding there
    int32_t arithmetic, dtype_a, dtype_b, dtype_c;  // dtype_c: of the addend
    int64_t k;
};

}  // namespace gemmsim
