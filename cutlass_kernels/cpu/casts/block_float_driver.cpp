// This driver rounds tensors to block floating point: it distributes runs of elements over threads.
#include "casts/block_float.h"
#include "casts/strided_dims.h"
#include "compiled_isas.h"
#include "run_tasks.h"

namespace gemmsim {

static const BlockFloatIsa* functions() { return GEMMSIM_VERSION(block_float, isa_of_kernels())(); }

static ScaledBlocks scaled_function() { return GEMMSIM_VERSION(scaled_blocks, isa_of_kernels())(); }

// A task is a piece of a run along the last dimension. Consecutive tasks are neighbours in the outer dimensions, so
// that they share the cache lines of strided runs.
struct BlockFloatTasks {
    const BlockFloatArgs& a;
    StridedDims<3> dims;  // of src, dst and the positions of random bits
    int64_t groups = 1, rows = 1, length, piece, pieces;
    int last;
    bool stream;

    explicit BlockFloatTasks(const BlockFloatArgs& args) : a(args), last(args.outer_dims + args.inner_dims - 1) {
        for (int d = 0; d <= last; ++d) dims.add(a.size[d], {a.src_stride, a.dst_stride, a.index_stride}, d);
        for (int d = 0; d < a.outer_dims; ++d) groups *= a.size[d];
        for (int d = a.outer_dims; d < last; ++d) rows *= a.size[d];
        length = a.size[last];
        piece = a.src_stride[last] == 1 ? 1 << 14 : 256;
        if (a.block) piece = a.block >= piece ? a.block : piece / a.block * a.block;
        pieces = (length + piece - 1) / piece;
        stream = a.dst_dtype == F32 && a.dst_stride[last] == 1 && elements() >= (1 << 20);
    }
    int64_t elements() const { return groups * rows * length; }
    int64_t count() const { return groups * rows * pieces; }
    int64_t group(int64_t task) const { return task % groups; }

    BlockFloatRun run(int64_t task) const {
        const int64_t rest = task / groups, first = rest / rows * piece;
        int64_t at[3] = {};
        dims.move(group(task), 0, a.outer_dims, at);
        dims.move(rest % rows, a.outer_dims, last, at);
        dims.step(last, first, at);
        BlockFloatRun r;
        r.src = (const char*)a.src + at[0] * size_of(a.src_dtype);
        r.dst = (char*)a.dst + at[1] * size_of(a.dst_dtype);
        r.count = length - first < piece ? length - first : piece;
        r.src_step = a.src_stride[last];
        r.dst_step = a.dst_stride[last];
        r.index_step = a.index_stride[last];
        r.index = (uint64_t)at[2];
        r.stream = stream;
        return r;
    }
};

static void raise_to(uint64_t* most, uint64_t value) {
    uint64_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(most, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

// All elements of a group share an exponent: one pass finds it, and a second pass rounds.
static int run_groups(const BlockFloatTasks& tasks, const BlockFloatIsa& isa, int threads) {
    const BlockFloatArgs& a = tasks.a;
    uint64_t* most = (uint64_t*)calloc((size_t)tasks.groups, sizeof(uint64_t));
    if (!most) return -1;
    const auto find = [&](int64_t task, char*) { return raise_to(most + tasks.group(task), isa.largest(a, tasks.run(task))), 0; };
    const auto round = [&](int64_t task, char*) { return isa.round(a, tasks.run(task), most[tasks.group(task)]), 0; };
    const int status = run_tasks(tasks.count(), threads, 0, find, round);
    free(most);
    return status;
}

static int run_block_float(const BlockFloatArgs& a) {
    const BlockFloatTasks tasks(a);
    if (tasks.elements() == 0) return 0;
    const BlockFloatIsa& isa = *functions();
    const int threads = tasks.elements() < FEW_ELEMENTS ? 1 : a.threads;
    if (!a.block) return run_groups(tasks, isa, threads);
    const ScaledBlocks blocks = a.kind == SHARED_EXPONENT ? isa.blocks : scaled_function();
    return run_tasks(tasks.count(), threads, 0, [&](int64_t task, char*) { return blocks(a, tasks.run(task)), 0; });
}

}  // namespace gemmsim

int64_t gemmsim_block_float_abi() { return sizeof(gemmsim::BlockFloatArgs); }
int gemmsim_block_float(const gemmsim::BlockFloatArgs* args) { return gemmsim::run_block_float(*args); }
