// This driver splits tensors of blocks into tasks and runs them on threads. A task is a range of whole blocks of one
// row along the blocked dimension.
#include "casts/block.h"
#include "casts/strided_dims.h"
#include "compiled_isas.h"
#include "run_tasks.h"

namespace gemmsim {

static BlockFn kernel() { return GEMMSIM_VERSION(block, isa_of_kernels())(); }

// Bytes of packed codes before element `i` of a row. A task starts where that number is whole.
static int64_t code_offset(int packing, int64_t i) { return packing == BYTES ? i : packing == DENSE6 ? i / 4 * 3 : i / 2; }

struct Blocks {
    const BlockArgs& a;
    StridedDims<4> dims;  // of src, codes, scales and dst
    int64_t rows = 1, per_task, tasks_per_row;
    bool stream;

    explicit Blocks(const BlockArgs& args) : a(args) {
        for (int d = 0; d < a.dims; ++d) {
            dims.add(a.size[d], {a.src_stride, a.code_stride, a.scale_stride, a.dst_stride}, d);
            rows *= a.size[d];
        }
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
        BlockTask t;
        t.first = index / rows * per_task;
        t.count = a.k - t.first < per_task ? a.k - t.first : per_task;
        int64_t at[4] = {t.first * a.src_step, code_offset(a.packing, t.first) * a.code_step, t.first / a.format.block_size * a.scale_step,
                         t.first * a.dst_step};
        dims.move(index % rows, 0, dims.count, at);
        t.src = (const char*)a.src + at[0] * size_of(a.src_dtype);
        t.codes = (uint8_t*)a.codes + at[1];
        t.scales = (uint8_t*)a.scales + at[2];
        t.dst = (char*)a.dst + at[3] * size_of(a.dst_dtype);
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
    return run_tasks(tasks, blocks.rows * a.k < FEW_ELEMENTS ? 1 : a.threads, block_work(blocks.per_task), [&](int64_t task, char* work) {
        blocks.run(task, fn, work);
        return 0;
    });
}

}  // namespace gemmsim

int64_t gemmsim_block_abi() { return sizeof(gemmsim::BlockArgs); }
int gemmsim_block(const gemmsim::BlockArgs* args) { return gemmsim::run_blocks(*args); }
