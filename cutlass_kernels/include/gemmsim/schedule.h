// A schedule: operations on a stack of partial sums, for orders of totals that no single wrapper says. Its runs read terms in sequence,
// and each run is computed by the wrappers inside the schedule. gemmsim/lowering/schedule.py writes it, for one number of terms.
#pragma once
#include "gemmsim/types.h"

namespace gemmsim {

enum ScheduleCode : int64_t {
    SCHEDULE_RUN = 0,         // push the sum of the next n terms
    SCHEDULE_ZERO = 1,        // push +0, or -0 if n is 1
    SCHEDULE_ADD = 2,         // pop x; the top becomes R(top + x). n is the stream of random bits.
    SCHEDULE_ROUND = 3,       // the top becomes R(top). n is the stream of random bits.
    SCHEDULE_COMPENSATE = 4,  // pop x; add it to the compensated sum of the top two, by method n
    SCHEDULE_CORRECT = 5      // pop the correction C; for every method n but KAHAN the top becomes R(top + C)
};

struct ScheduleOp {
    int64_t code, cast;  // cast: which of the SCHEDULED wrappers rounds
    int64_t n, index;    // index of the draw
};

}  // namespace gemmsim
