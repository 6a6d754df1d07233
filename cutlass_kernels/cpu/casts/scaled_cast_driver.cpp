// This driver runs scaled casts of whole tensors: it merges dimensions, and distributes tasks of rows over threads.
#include "casts/scaled_cast.h"
#include "casts/strided_dims.h"
#include "compiled_isas.h"
#include "run_tasks.h"

namespace gemmsim {

static ScaledFn kernel() { return GEMMSIM_VERSION(scaled_cast, isa_of_kernels())(); }

typedef StridedDims<4> ScaledDims;  // of src, dst, amax and second

// The dimensions without those of size one, merged where all tensors allow it. Blocks stay along the last dimension.
// The order of the other dimensions is free and follows the destination's memory.
static ScaledDims dims_of(const ScaledArgs& a) {
    const bool blocks = a.block != 0;
    ScaledDims x;
    for (int d = 0; d < a.dims; ++d)
        if (a.size[d] != 1 || (blocks && d == a.dims - 1))
            x.add(a.size[d], {a.src_stride, a.dst_stride, a.amax_stride, a.second_stride}, d);
    if (x.count == 0) x.dim[x.count++] = {1, {1, 1, 0, 0}};
    x.sort(blocks ? x.count - 1 : x.count, 1);
    const int last = x.count - 1;
    x.merge([&](int d) { return !(blocks && d == last && x.dim[d].size % a.block); });
    return x;
}

constexpr int64_t PIECE = 1 << 14;

struct ScaledJob {
    const ScaledArgs& a;
    const ScaledDims dims;
    const int last;
    int64_t piece, pieces, rows = 1, groups = 1, outer = 1;  // rows of one task; groups of rows in a dimension
    bool stream;

    explicit ScaledJob(const ScaledArgs& args) : a(args), dims(dims_of(args)), last(dims.count - 1) {
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
        stream = a.dst_dtype == F32 && dims.dim[last].stride[1] == 1 && all >= (1 << 20);
    }
    int64_t tasks() const { return outer * groups * pieces; }
    int64_t elements() const { return outer * (last > 0 ? dims.dim[last - 1].size : 1) * dims.dim[last].size; }

    int run(int64_t index, ScaledFn fn, char* work) const {
        const int64_t (&in)[4] = dims.dim[last].stride;
        const int64_t first = index % pieces * piece, group = index / pieces % groups, size = dims.dim[last].size;
        int64_t at[4] = {};
        dims.step(last, first, at);
        ScaledTask t = {};
        t.n = size - first < piece ? size - first : piece;
        t.rows = 1;
        if (last > 0) {
            const ScaledDims::Dim& by = dims.dim[last - 1];
            t.rows = by.size - group * rows < rows ? by.size - group * rows : rows;
            t.src_row = by.stride[0], t.dst_row = by.stride[1], t.amax_row = by.stride[2], t.second_row = by.stride[3];
            dims.step(last - 1, group * rows, at);
        }
        dims.move(index / pieces / groups, 0, last - 1, at);
        t.src = (const char*)a.src + at[0] * size_of(a.src_dtype);
        t.dst = (char*)a.dst + at[1] * size_of(a.dst_dtype);
        t.amax = a.amax ? a.amax + at[2] : nullptr;
        t.second = a.second ? a.second + at[3] : nullptr;
        t.src_step = in[0], t.dst_step = in[1], t.amax_step = in[2], t.second_step = in[3];
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
    return run_tasks(job.tasks(), job.elements() < FEW_ELEMENTS ? 1 : a.threads, a.block ? scaled_work(job.piece) : 0,
                     [&](int64_t task, char* work) { return job.run(task, fn, work); });
}

}  // namespace gemmsim

int64_t gemmsim_scaled_abi() { return sizeof(gemmsim::ScaledArgs); }
int gemmsim_scaled_cast(const gemmsim::ScaledArgs* a) { return gemmsim::run_scaled(*a); }
