// This file casts whole tensors element by element in one pass: any strides, dtypes and number of elements.
#include "casts/strided_dims.h"
#include "run_tasks.h"
#include "gemmsim/philox.h"

namespace gemmsim {

// Dimensions are merged where both tensors allow it. A deterministic cast may visit elements in any order, so its
// dimensions are first sorted by the destination's strides.
static StridedDims<2> dims_of(const QuantizeArgs& q, bool free_order) {
    StridedDims<2> x;
    for (int d = 0; d < q.dims; ++d)
        if (q.size[d] != 1) x.add(q.size[d], {q.src_stride, q.dst_stride}, d);
    if (x.count == 0) x.dim[x.count++] = {1, {1, 1}};
    if (free_order) x.sort(x.count, 1);
    x.merge([](int) { return true; });
    return x;
}

constexpr int64_t PIECE = 1 << 14, CHUNK = 1024;

struct Quantizer {
    const Isa& isa;
    const QuantizeArgs& q;
    const int carrier;
    const bool direct, stream;

    Quantizer(const Isa& i, const QuantizeArgs& a, bool contiguous, int64_t n)
        : isa(i), q(a), carrier(a.src_dtype == F64 || a.dst_dtype == F64 ? 1 : 0),
          direct(contiguous && a.src_dtype == a.dst_dtype && a.src_dtype <= F64 && a.cast.mode < SR),
          stream(n * size_of(a.dst_dtype) >= (4 << 20)) {}

    // Casts n elements from the given element offsets. `index` is the first one's row-major position.
    void piece(int64_t at_src, int64_t at_dst, int64_t step_src, int64_t step_dst, int64_t n, uint64_t index) const {
        const char* s = (const char*)q.src + at_src * size_of(q.src_dtype);
        char* d = (char*)q.dst + at_dst * size_of(q.dst_dtype);
        if (direct && isa.quantize(carrier, s, d, n, q.cast, stream)) return;
        alignas(64) char work[CHUNK * 8];
        for (int64_t i = 0; i < n; i += CHUNK) {
            const int64_t c = n - i < CHUNK ? n - i : CHUNK;
            isa.load(carrier, s + i * step_src * size_of(q.src_dtype), q.src_dtype, step_src, c, work);
            isa.round(carrier, work, c, q.cast, q.seed, q.start + index + i, q.site);
            isa.save(carrier, work, c, d + i * step_dst * size_of(q.dst_dtype), q.dst_dtype, step_dst);
        }
    }
};

int run_quantize(const Isa& isa, const QuantizeArgs& q) {
    int64_t n = 1;
    for (int d = 0; d < q.dims; ++d) n *= q.size[d];
    if (n == 0) return 0;
    const StridedDims<2> dims = dims_of(q, q.cast.mode < SR);
    const int last = dims.count - 1;
    const int64_t inner = dims.dim[last].size, src = dims.dim[last].stride[0], dst = dims.dim[last].stride[1];
    const Quantizer job(isa, q, src == 1 && dst == 1, n);
    const int64_t pieces = (inner + PIECE - 1) / PIECE, outer = n / inner;
    return run_tasks(outer * pieces, n < FEW_ELEMENTS ? 1 : q.threads, 0, [&](int64_t task, char*) {
        const int64_t row = task / pieces, first = task % pieces * PIECE, count = inner - first < PIECE ? inner - first : PIECE;
        int64_t at[2] = {};
        dims.move(row, 0, last, at);
        dims.step(last, first, at);
        job.piece(at[0], at[1], src, dst, count, (uint64_t)(row * inner + first));
        return 0;
    });
}

}  // namespace gemmsim
