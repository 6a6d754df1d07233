// Runs independent tasks on threads, for the drivers of casts and of row operations.
#pragma once
#include <stdlib.h>
#include "api.h"
#include "float_state.h"

namespace gemmsim {

// Bytes of an element.
inline int64_t size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// One thread computes tensors of fewer elements than this.
constexpr int64_t FEW_ELEMENTS = 1 << 16;

// Calls `phases` one after the other, each as phase(index, work) for all indices below `tasks`. `work` has room for `bytes` bytes, which
// belong to the thread. Returns what all tasks returned, combined by OR, or -1 if there is no memory for `work`.
template <class... F> int run_tasks(int64_t tasks, [[maybe_unused]] int threads, int64_t bytes, const F&... phases) {
    int status = 0, no_memory = 0;
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : status, no_memory)
    {
        const FloatState state;
        char* work = nullptr;
        const bool usable = !bytes || !posix_memalign((void**)&work, 64, (size_t)bytes);
        no_memory |= !usable;
        const auto run = [&](const auto& phase) {
#pragma omp for schedule(static)
            for (int64_t task = 0; task < tasks; ++task)
                if (usable) status |= phase(task, work);
        };
        (run(phases), ...);
        free(work);
    }
    return no_memory ? -1 : status;
}

}  // namespace gemmsim
