// This driver runs row operations on threads. A task has whole rows (elements, for ROW_MAP), so that results do not
// depend on the number of tasks.
#include "compiled_isas.h"
#include "rows/rows.h"
#include "run_tasks.h"

namespace gemmsim {

static RowFn row_kernel() { return GEMMSIM_VERSION(rows, isa_of_kernels())(); }

// Work space of a thread. It persists between calls, because mapping new pages costs as much as eight rows.
struct RowWork {
    char* memory = nullptr;
    int64_t size = 0;
    ~RowWork() { free(memory); }
    char* of(int64_t needed) {
        if (needed > size) {
            free(memory);
            memory = nullptr;
            size = posix_memalign((void**)&memory, 64, (size_t)needed) ? 0 : needed;
        }
        return size ? memory : nullptr;
    }
};

// Full vectors of 16 floats if every thread then has a task, else half vectors of 8 doubles.
static int64_t rows_per_task(const RowArgs& a) {
    if (a.rows < 16 * (int64_t)a.threads) return a.threads > 1 ? 8 : 16;
    return a.rows >= 64 * (int64_t)a.threads ? 64 : 16;
}

static int run_row_tasks(const RowArgs& a) {
    if (a.rows == 0) return 0;
    const RowFn fn = row_kernel();
    const int64_t per = a.op == ROW_MAP ? 4096 : rows_per_task(a), tasks = (a.rows + per - 1) / per;
    const int threads = a.rows * a.cols < (1 << 13) || tasks == 1 ? 1 : a.threads;
    return run_tasks(tasks, threads, 0, [&](int64_t task, char*) {
        static thread_local RowWork kept;
        char* const work = kept.of(row_work(a));
        if (work) fn(a, task * per, a.rows - task * per < per ? a.rows - task * per : per, work);
        return work ? 0 : -1;
    });
}

}  // namespace gemmsim

int64_t gemmsim_rows_abi() { return sizeof(gemmsim::RowArgs); }
int gemmsim_rows(const gemmsim::RowArgs* a) { return gemmsim::run_row_tasks(*a); }
