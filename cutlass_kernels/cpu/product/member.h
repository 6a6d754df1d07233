// One accumulator as the library sees it: the register of a run of terms, and the orders around runs. A palette has several members,
// every other product one.
#pragma once
#include "isa_table.h"

namespace gemmsim {

struct Member {
    int32_t fused, init;
    Cast mul, add;
    int32_t wrapper_count, method;  // method: a value of enum Method
    Wrapper wrappers[MAX_WRAPPERS];
    Register integer;
    HardwareModel hardware;
    const int64_t* permutation;  // SHUFFLED: the original index of each position
};

}  // namespace gemmsim
