// This driver splits tensors of blocks into tasks and runs them on threads. A task is a range of whole blocks of one
// row along the blocked dimension.
#include <stdlib.h>
#include <string.h>
#include "casts/block.h"
#include "float_state.h"
#include "compiled_isas.h"

namespace gemmsim {

static BlockFn kernel() {
    return GEMMSIM_VERSION(block, isa_of_kernels())();
}

static int64_t size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// Bytes of packed codes before element `i` of a row. A task starts where that number is whole.
static int64_t code_offset(int packing, int64_t i) { return packing == BYTES ? i : packing == DENSE6 ? i / 4 * 3 : i / 2; }

struct Blocks {
    const BlockArgs& a;
    int64_t rows = 1, per_task, tasks_per_row;
    bool stream;

    explicit Blocks(const BlockArgs& args) : a(args) {
        for (int d = 0; d < a.dims; ++d) rows *= a.size[d];
        // A task has whole blocks, and a multiple of eight elements, so that packed codes end at a byte. Where rows
        // interleave in memory a task is short, so that its cache lines are still in the cache for the next row.
        const bool interleaved = (a.op == DECODE ? a.dst_step : a.src_step) != 1;
        const int64_t group = a.format.block_size > a.k ? a.k : a.format.block_size * 8;
        const int64_t groups = (interleaved ? 256 : 4096) / group;
        per_task = group * (groups < 1 ? 1 : groups);
        tasks_per_row = (a.k + per_task - 1) / per_task;
        stream = a.op != ENCODE && a.dst_dtype == F32 && a.dst_step == 1 && rows * a.k >= (1 << 20);
    }

    void run(int64_t index, BlockFn fn, char* work) const {
        int64_t row = index % rows, src = 0, codes = 0, scales = 0, dst = 0;
        BlockTask t;
        t.first = index / rows * per_task;
        t.count = a.k - t.first < per_task ? a.k - t.first : per_task;
        for (int d = a.dims - 1; d >= 0; --d) {
            const int64_t i = row % a.size[d];
            row /= a.size[d];
            src += i * a.src_stride[d];
            codes += i * a.code_stride[d];
            scales += i * a.scale_stride[d];
            dst += i * a.dst_stride[d];
        }
        t.src = (const char*)a.src + (src + t.first * a.src_step) * size_of(a.src_dtype);
        t.codes = (uint8_t*)a.codes + codes + code_offset(a.packing, t.first) * a.code_step;
        t.scales = (uint8_t*)a.scales + scales + t.first / a.format.block_size * a.scale_step;
        t.dst = (char*)a.dst + (dst + t.first * a.dst_step) * size_of(a.dst_dtype);
        t.work = work;
        t.stream = stream;
        fn(a, t);
    }
};

static int run_blocks(const BlockArgs& a) {
    const Blocks blocks(a);
    const int64_t tasks = blocks.rows * blocks.tasks_per_row;
    if (a.k == 0 || tasks == 0) return 0;
    const BlockFn fn = kernel();
    [[maybe_unused]] const int threads = blocks.rows * a.k < (1 << 16) ? 1 : a.threads;
    int status = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const FloatState state;
        char* work = nullptr;
        const int failed = posix_memalign((void**)&work, 64, (size_t)block_work(blocks.per_task));
        if (failed) {
#pragma omp atomic write
            status = -1;
        }
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks; ++task)
            if (!failed) blocks.run(task, fn, work);
        free(work);
    }
    return status;
}

}  // namespace gemmsim

int64_t gemmsim_block_abi() { return sizeof(gemmsim::BlockArgs); }
int gemmsim_block(const gemmsim::BlockArgs* args) { return gemmsim::run_blocks(*args); }
