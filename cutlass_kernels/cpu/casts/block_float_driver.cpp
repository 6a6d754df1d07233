// This driver rounds tensors to block floating point: it distributes runs of elements over threads.
#include <stdlib.h>
#include <string.h>
#include "casts/block_float.h"
#include "float_state.h"
#include "compiled_isas.h"

namespace gemmsim {

static const BlockFloatIsa* functions() {
    return GEMMSIM_VERSION(block_float, isa_of_kernels())();
}

static ScaledBlocks scaled_function() {
    return GEMMSIM_VERSION(scaled_blocks, isa_of_kernels())();
}

static int64_t size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// A task is a piece of a run along the last dimension. Consecutive tasks are neighbours in the outer dimensions, so
// that they share the cache lines of strided runs.
struct BlockFloatTasks {
    const BlockFloatArgs& a;
    int64_t groups = 1, rows = 1, length, piece, pieces;
    int last;
    bool stream;

    explicit BlockFloatTasks(const BlockFloatArgs& args) : a(args), last(args.outer_dims + args.inner_dims - 1) {
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
        int64_t group = task % groups, rest = task / groups, row = rest % rows;
        const int64_t first = rest / rows * piece;
        int64_t src = first * a.src_stride[last], dst = first * a.dst_stride[last], index = first * a.index_stride[last];
        const auto move = [&](int64_t& position, int d) {
            const int64_t at = position % a.size[d];
            position /= a.size[d];
            src += at * a.src_stride[d];
            dst += at * a.dst_stride[d];
            index += at * a.index_stride[d];
        };
        for (int d = a.outer_dims - 1; d >= 0; --d) move(group, d);
        for (int d = last - 1; d >= a.outer_dims; --d) move(row, d);
        BlockFloatRun r;
        r.src = (const char*)a.src + src * size_of(a.src_dtype);
        r.dst = (char*)a.dst + dst * size_of(a.dst_dtype);
        r.count = length - first < piece ? length - first : piece;
        r.src_step = a.src_stride[last];
        r.dst_step = a.dst_stride[last];
        r.index_step = a.index_stride[last];
        r.index = (uint64_t)index;
        r.stream = stream;
        return r;
    }
};

static void raise_to(uint64_t* most, uint64_t value) {
    uint64_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(most, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

// All elements of a group share an exponent: one pass finds it, and a second pass rounds.
static int run_groups(const BlockFloatTasks& tasks, const BlockFloatIsa& isa, [[maybe_unused]] int threads) {
    const BlockFloatArgs& a = tasks.a;
    uint64_t* most = (uint64_t*)calloc((size_t)tasks.groups, sizeof(uint64_t));
    if (!most) return -1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const FloatState state;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks.count(); ++task) raise_to(most + tasks.group(task), isa.largest(a, tasks.run(task)));
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks.count(); ++task) isa.round(a, tasks.run(task), most[tasks.group(task)]);
    }
    free(most);
    return 0;
}

static int run_block_float(const BlockFloatArgs& a) {
    const BlockFloatTasks tasks(a);
    if (tasks.elements() == 0) return 0;
    const BlockFloatIsa& isa = *functions();
    const int threads = tasks.elements() < (1 << 16) ? 1 : a.threads;
    if (!a.block) return run_groups(tasks, isa, threads);
    const ScaledBlocks blocks = a.kind == SHARED_EXPONENT ? isa.blocks : scaled_function();
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const FloatState state;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks.count(); ++task) blocks(a, tasks.run(task));
    }
    return 0;
}

}  // namespace gemmsim

int64_t gemmsim_block_float_abi() { return sizeof(gemmsim::BlockFloatArgs); }
int gemmsim_block_float(const gemmsim::BlockFloatArgs* args) { return gemmsim::run_block_float(*args); }
