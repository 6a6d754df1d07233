// The configuration of a kernel that uses CUTLASS' mainloop (kernel.h): what is known when it is compiled.
#pragma once
#include "gemm/tensor_cores/native_mma_config.h"

namespace gemmsim {

// `a`, `b`: operand formats. `promoted`: the number of terms whose sum the mainloop adds to a register of binary32. It is 0 where one
// register adds all terms. Only FP8 may have another value.
struct CollectiveConfig {
    Element a, b;
    int promoted;
};

// The number of terms between promotions that CUTLASS' mainloop for FP8 has as its default: 4 instructions of 32 terms.
constexpr int COLLECTIVE_PROMOTION = 128;

}  // namespace gemmsim
