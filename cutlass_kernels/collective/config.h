// Products by a mainloop of CUTLASS: what is known when a kernel is compiled.
#pragma once
#include "gemm/tensor_cores/native_mma_config.h"

namespace gemmsim {

// Operand formats; promoted: the sum of every so many terms is added to a register of binary32 (FP8 alone), 0 for one register.
struct CollectiveConfig {
    Element a, b;
    int promoted;
};

// Terms between promotions that CUTLASS' mainloop for FP8 has as its default: 4 instructions of 32.
constexpr int COLLECTIVE_PROMOTION = 128;

}  // namespace gemmsim
