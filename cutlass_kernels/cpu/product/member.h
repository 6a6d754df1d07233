// What one accumulator is to the library: runs of terms, and the orders around them.
#pragma once
#include "isa_table.h"

namespace gemmsim {

struct Member {
    int32_t fused, init;
    Cast mul, add;
    int32_t wrapper_count, method;  // method: Method of a run
    Wrapper wrappers[MAX_WRAPPERS];
    Register integer;
    HardwareModel hardware;
    const int64_t* permutation;  // SHUFFLED: original index of each position
};

}  // namespace gemmsim
