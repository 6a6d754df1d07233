// One accumulator as the library sees it: the register of a run of terms, and the orders around runs. A palette has several members,
// every other product one.
#pragma once
#include "gemmsim/schedule.h"
#include "isa_table.h"

namespace gemmsim {

// The schedule of a product's terms. `terms`: the term at each place, null if that is the place.
struct Schedule {
    const ScheduleOp* ops;
    int64_t count;
    const int64_t* terms;
    int64_t depth, longest, shortest;  // partial sums on the stack; terms of runs
    int64_t levels;                    // levels of random bits around the runs
};

struct Member {
    int32_t fused, init;
    Cast mul, add;
    int32_t wrapper_count, method;  // method: a value of enum Method
    Wrapper wrappers[MAX_WRAPPERS];
    Register integer;
    HardwareModel hardware;
    const int64_t* permutation;  // SHUFFLED: the original index of each position
    const Schedule* schedule;    // null: none
};

}  // namespace gemmsim
