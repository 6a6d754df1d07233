// This driver runs scaled casts of whole tensors: it merges dimensions, and distributes tasks of rows over threads.
#include <stdlib.h>
#include <string.h>
#include "float_state.h"
#include "casts/scaled_cast.h"
#include "compiled_isas.h"

namespace gemmsim {

static ScaledFn kernel() {
    return GEMMSIM_VERSION(scaled_cast, isa_of_kernels())();
}

static int64_t size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

struct ScaledDim {
    int64_t size, src, dst, amax, second;
};

// The dimensions without those of size one, merged where all tensors allow it. Blocks stay along the last dimension.
// The order of the other dimensions is free and follows the destination's memory.
struct ScaledDims {
    int count = 0;
    ScaledDim dim[MAX_BATCH_DIMS + 1];

    explicit ScaledDims(const ScaledArgs& a) {
        const bool blocks = a.block != 0;
        for (int d = 0; d < a.dims; ++d) {
            if (a.size[d] == 1 && !(blocks && d == a.dims - 1)) continue;
            dim[count++] = {a.size[d], a.src_stride[d], a.dst_stride[d], a.amax_stride[d], a.second_stride[d]};
        }
        if (count == 0) dim[count++] = {1, 1, 1, 0, 0};
        const int sorted = blocks ? count - 1 : count;
        for (int i = 1; i < sorted; ++i)
            for (int j = i; j > 0 && dim[j - 1].dst < dim[j].dst; --j) {
                const ScaledDim t = dim[j];
                dim[j] = dim[j - 1];
                dim[j - 1] = t;
            }
        int out = 0;
        for (int d = 1; d < count; ++d) {
            const bool last = blocks && d == count - 1;
            if (follows(dim[out], dim[d]) && !(last && dim[d].size % a.block)) {
                const int64_t size = dim[out].size * dim[d].size;
                dim[out] = dim[d];
                dim[out].size = size;
            } else {
                dim[++out] = dim[d];
            }
        }
        count = out + 1;
    }
    static bool follows(const ScaledDim& outer, const ScaledDim& inner) {
        const int64_t n = inner.size;
        return outer.src == inner.src * n && outer.dst == inner.dst * n && outer.amax == inner.amax * n && outer.second == inner.second * n;
    }
};

constexpr int64_t PIECE = 1 << 14;

struct ScaledJob {
    const ScaledArgs& a;
    const ScaledDims dims;
    const int last;
    int64_t piece, pieces, rows = 1, groups = 1, outer = 1;  // rows of one task; groups of rows in a dimension
    bool stream;

    explicit ScaledJob(const ScaledArgs& args) : a(args), dims(args), last(dims.count - 1) {
        const int64_t n = dims.dim[last].size;
        piece = a.block ? a.block * (a.block < PIECE ? PIECE / a.block : 1) : PIECE;
        if (piece > n) piece = n;
        pieces = (n + piece - 1) / piece;
        int64_t all = n;
        for (int d = 0; d < last; ++d) all *= dims.dim[d].size;
        if (last > 0) {
            const int64_t count = dims.dim[last - 1].size, wanted = pieces > 1 ? 1 : (PIECE + n - 1) / n;
            rows = wanted < count ? wanted : count;
            groups = (count + rows - 1) / rows;
        }
        for (int d = 0; d < last - 1; ++d) outer *= dims.dim[d].size;
        stream = a.dst_dtype == F32 && dims.dim[last].dst == 1 && all >= (1 << 20);
    }
    int64_t tasks() const { return outer * groups * pieces; }
    int64_t elements() const { return outer * (last > 0 ? dims.dim[last - 1].size : 1) * dims.dim[last].size; }

    int run(int64_t index, ScaledFn fn, char* work) const {
        const ScaledDim& in = dims.dim[last];
        const int64_t first = index % pieces * piece, group = index / pieces % groups;
        int64_t row = index / pieces / groups;
        int64_t src = first * in.src, dst = first * in.dst, amax = first * in.amax, second = first * in.second;
        ScaledTask t = {};
        t.n = in.size - first < piece ? in.size - first : piece;
        t.rows = 1;
        if (last > 0) {
            const ScaledDim& by = dims.dim[last - 1];
            const int64_t at = group * rows;
            t.rows = by.size - at < rows ? by.size - at : rows;
            t.src_row = by.src, t.dst_row = by.dst, t.amax_row = by.amax, t.second_row = by.second;
            src += at * by.src, dst += at * by.dst, amax += at * by.amax, second += at * by.second;
        }
        for (int d = last - 2; d >= 0; --d) {
            const ScaledDim& by = dims.dim[d];
            const int64_t i = row % by.size;
            row /= by.size;
            src += i * by.src, dst += i * by.dst, amax += i * by.amax, second += i * by.second;
        }
        t.src = (const char*)a.src + src * size_of(a.src_dtype);
        t.dst = (char*)a.dst + dst * size_of(a.dst_dtype);
        t.amax = a.amax ? a.amax + amax : nullptr;
        t.second = a.second ? a.second + second : nullptr;
        t.src_step = in.src, t.dst_step = in.dst, t.amax_step = in.amax, t.second_step = in.second;
        t.work = work;
        t.stream = stream;
        return fn(a, t);
    }
};

static int run_scaled(const ScaledArgs& a) {
    for (int d = 0; d < a.dims; ++d)
        if (a.size[d] == 0) return 0;
    const ScaledJob job(a);
    const ScaledFn fn = kernel();
    const int64_t tasks = job.tasks();
    [[maybe_unused]] const int threads = job.elements() < (1 << 16) ? 1 : a.threads;
    int status = 0, failed_any = 0;
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : status, failed_any)
    {
        const FloatState state;
        char* work = nullptr;
        const int failed = a.block ? posix_memalign((void**)&work, 64, (size_t)scaled_work(job.piece)) : 0;
        failed_any |= failed != 0;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks; ++task)
            if (!failed) status |= job.run(task, fn, work);
        free(work);
    }
    return failed_any ? -1 : status;
}

}  // namespace gemmsim

int64_t gemmsim_scaled_abi() { return sizeof(gemmsim::ScaledArgs); }
int gemmsim_scaled_cast(const gemmsim::ScaledArgs* a) { return gemmsim::run_scaled(*a); }
